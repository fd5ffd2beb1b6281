// Majority: whether a controller may begin a generation, and what that rests on.
#include "runtime/core/majority.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow(100s);

Policy Needed(TieRule rule = TieRule::kLowestRank) {
  Policy policy;
  policy.world_size = 4;
  policy.needs_consent = true;
  policy.consent_wait = 60s;
  policy.tie_rule = rule;
  return policy;
}

// The first `live` of four answer; nothing is known of the others.
Roster Answering(int live) {
  Roster roster(4);
  for (int r = 0; r < 4; ++r) {
    Member& member = roster.At(Rank(r));
    if (r < live)
      roster.SetLife(member, Life::kReady);
    else
      member.unconfirmed = Incarnation(1);
  }
  return roster;
}

TEST(Majority, IsAnybodysWhereNoConsentIsNeeded) {
  Majority majority{Policy()};
  EXPECT_TRUE(majority.Has(Answering(0), kNow));
  EXPECT_TRUE(majority.MayGoOn(Answering(0), kNow));
  EXPECT_THROW(majority.Await(kNow), CheckFailure);
}

TEST(Majority, CountsThoseThatAnswerAndThoseKnownToHaveEnded) {
  Majority majority(Needed());
  Roster roster = Answering(1);
  EXPECT_FALSE(majority.Has(roster, kNow));
  roster.At(Rank(2)).unconfirmed.reset();  // their ends were seen
  roster.At(Rank(3)).unconfirmed.reset();
  EXPECT_EQ(majority.Count(roster), Consent::kYes) << "an even split, and the lowest rank is here";
  Roster fresh = Answering(2);
  EXPECT_TRUE(majority.Has(fresh, kNow));
  fresh.At(Rank(0)).trust.Find(true);  // a replacement has no vote before it holds the run's state
  fresh.At(Rank(0)).unconfirmed = Incarnation(1);
  EXPECT_FALSE(majority.Has(fresh, kNow));
}

TEST(Majority, IsWaitedForOnceInAnIncidentHoweverOftenItLocks) {
  Majority majority(Needed());
  majority.OnIncident();
  EXPECT_FALSE(majority.MayGoOn(Answering(1), kNow));
  EXPECT_TRUE(majority.Await(kNow));
  EXPECT_EQ(majority.until(), kNow + 60s);
  majority.OnPhase(Phase::kLock);
  EXPECT_FALSE(majority.Await(kNow + 30s)) << "said again";
  EXPECT_EQ(majority.until(), kNow + 60s) << "the wait began anew";
  majority.OnIncident();
  EXPECT_TRUE(majority.Await(kNow + 90s));
  EXPECT_EQ(majority.until(), kNow + 150s);
}

// Those that elected its leader had waited for the others.
TEST(Majority, IsNotWaitedForByAPartBeforeItHasHadOne) {
  Policy policy = Needed();
  policy.part = true;
  Majority part(policy);
  part.OnIncident();
  EXPECT_FALSE(part.MayGoOn(Answering(1), kNow));
  part.Await(kNow);
  EXPECT_EQ(part.until(), kNow);
  part.GiveUp();
  EXPECT_TRUE(part.MayGoOn(Answering(1), kNow));
  EXPECT_EQ(part.wait(), 0s) << "a minority is a part still";

  Majority joined(policy);  // the others came to it
  EXPECT_TRUE(joined.MayGoOn(Answering(3), kNow));
  EXPECT_EQ(joined.wait(), 60s);
  Majority undisturbed(policy);
  undisturbed.OnPhase(Phase::kRunning);
  EXPECT_EQ(undisturbed.wait(), 60s);
}

TEST(Majority, AMinorityGoesOnAndRestsOnNobodysWord) {
  Majority majority(Needed(TieRule::kWitness));
  majority.TakeWord(kNow + 1s);
  EXPECT_THROW(majority.GiveUp(), CheckFailure) << "nobody has waited for it";
  majority.Await(kNow);
  majority.GiveUp();
  EXPECT_TRUE(majority.minority());
  EXPECT_TRUE(majority.MayGoOn(Answering(1), kNow));
  EXPECT_FALSE(majority.LostWord(Answering(1), kNow + 2s));
}

TEST(Majority, WhatRestsOnTheWitnesssWordEndsWithIt) {
  Majority majority(Needed(TieRule::kWitness));
  const Roster half = Answering(2);
  EXPECT_FALSE(majority.MayGoOn(half, kNow)) << "it has not spoken";
  majority.TakeWord(kNow + 10s);
  EXPECT_TRUE(majority.MayGoOn(half, kNow));
  EXPECT_FALSE(majority.LostWord(half, kNow + 9s));
  EXPECT_TRUE(majority.LostWord(half, kNow + 10s));
  EXPECT_FALSE(majority.LostWord(half, kNow + 11s)) << "told once";
}

TEST(Majority, TheWordMattersUntilTheRunGoesOnAndNeverToAMajorityOfItsOwn) {
  Majority majority(Needed(TieRule::kWitness));
  majority.TakeWord(kNow + 10s);
  EXPECT_TRUE(majority.MayGoOn(Answering(2), kNow));
  majority.OnPhase(Phase::kStop);
  EXPECT_FALSE(majority.LostWord(Answering(3), kNow + 20s)) << "others came back";
  majority.OnPhase(Phase::kRunning);
  EXPECT_FALSE(majority.LostWord(Answering(2), kNow + 20s));
}

}  // namespace
}  // namespace kintsugi::core
