// Launchers that were started anew: how long they are newcomers, and what their word weighs.
#include "runtime/core/newcomer.h"

#include <gtest/gtest.h>

#include "runtime/core/election.h"
#include "runtime/core/majority.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TEST(Newcomer, IsNoneWhereTheRunBeginsWithIt) {
  Newcomer launcher;
  EXPECT_TRUE(launcher.is_one());
  launcher.OnWelcome();
  EXPECT_TRUE(launcher.is_one()) << "nobody has said yet how the run stands";
  launcher.OnPulse(/*started=*/false, Generation());
  EXPECT_FALSE(launcher.is_one());
}

TEST(Newcomer, IsOneUntilAllRanksWereInTheirLoopsOnceMore) {
  Newcomer launcher;
  launcher.OnWelcome();
  for (int i = 0; i < 3; ++i) launcher.OnPulse(true, Generation(4));
  EXPECT_TRUE(launcher.is_one());
  launcher.OnPulse(true, Generation(6));
  EXPECT_FALSE(launcher.is_one());
  launcher.OnPulse(true, Generation(6));
  EXPECT_FALSE(launcher.is_one());
}

// The other leader knows of a newer generation: that one began before this launcher came, without its ranks.
TEST(Newcomer, IsOneStillToALeaderThatKnowsMoreThanTheOneBefore) {
  Newcomer launcher;
  launcher.OnWelcome();
  launcher.OnPulse(true, Generation(4));
  launcher.OnWelcome();
  launcher.OnPulse(true, Generation(6));
  EXPECT_TRUE(launcher.is_one());
  launcher.OnWelcome();
  launcher.OnPulse(true, Generation(5));
  launcher.OnPulse(true, Generation(6));
  EXPECT_TRUE(launcher.is_one()) << "one that knew less, and has heard";
  launcher.OnPulse(true, Generation(7));
  EXPECT_FALSE(launcher.is_one());
}

// Three nodes of two ranks each: node 0 stands for term 2.
ElectionCore Candidate() {
  ElectionCore core({0, 6, 20s});
  TimePoint now(100s);
  core.Follow(1);
  core.Lose(now);
  while (!core.OnTick(now, {{Rank(0), Rank(1)}, {}}).ask) now = now + 10ms;
  return core;
}

TEST(Newcomer, ItsVoteMakesNoLeaderWhileAnybodyCannotBeAsked) {
  const ElectionCore::LocalRanks ended{{}, {Rank(4), Rank(5)}}, live{{Rank(4), Rank(5)}, {}};
  EXPECT_TRUE(Candidate().OnVote(2, 2, ended).lead) << "an even split, and the lowest rank is here";
  for (ElectionCore::LocalRanks told : {ended, live}) {
    told.newcomer = true;
    ElectionCore core = Candidate();
    EXPECT_FALSE(core.OnVote(2, 2, told).lead);
    EXPECT_TRUE(core.OnVote(1, 2, {{}, {Rank(2), Rank(3)}}).lead) << "nobody is left who could know more";
  }
}

Policy ThreeHosts() {
  Policy policy = Bench::QuickPolicy(6);
  policy.needs_consent = true;
  policy.node_ranks = 2;
  policy.consent_wait = 60s;
  return policy;
}

// Ranks 4 and 5 are lost with their launcher, ranks 2 and 3 with the road to their node.
void LoseFourOfSix(Bench& bench, bool forgotten) {
  bench.Run();
  bench.CommitAll(8);
  bench.replacements_come = false;
  bench.silent = bench.mute = {2, 3, 4, 5};
  for (int rank : {2, 3, 4, 5}) bench.Close(rank);
  bench.Pass(3s);
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  if (forgotten) bench.Feed(LauncherNew{Rank(4), 2});
  for (int rank : {4, 5}) bench.Feed(ProcessExited{Rank(rank), *bench.member(rank).unconfirmed, "had ended", {}});
}

TEST(Newcomer, WhatItTellsOfEndsDecidesNothingAgainstThoseWhoAreCutOff) {
  for (const bool forgotten : {false, true}) {
    Bench bench(ThreeHosts());
    LoseFourOfSix(bench, forgotten);
    EXPECT_EQ(bench.core.phase() == Phase::kLock, forgotten) << PhaseName(bench.core.phase());
    if (!forgotten) continue;
    for (int rank : {2, 3}) bench.Feed(ProcessExited{Rank(rank), *bench.member(rank).unconfirmed, "had ended", {}});
    EXPECT_NE(bench.core.phase(), Phase::kLock) << "all have been asked";
  }
}

TEST(Newcomer, WeighsLikeAnyOtherOnceTheRunHasGoneOnWithIt) {
  Bench bench(ThreeHosts());
  bench.Run();
  bench.CommitAll(8);
  bench.Feed(LauncherNew{Rank(4), 2});
  EXPECT_TRUE(bench.member(4).forgotten && bench.member(5).forgotten && !bench.member(3).forgotten);
  for (int rank : {4, 5}) bench.Exit(rank);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_FALSE(bench.member(4).forgotten || bench.member(5).forgotten);
  const uint64_t dropped = bench.core.dropped_messages();
  for (const auto& [first, ranks] : {std::pair(5, 2), {-1, 2}, {0, 0}}) bench.Feed(LauncherNew{Rank(first), ranks});
  EXPECT_EQ(bench.core.dropped_messages(), dropped + 3) << "outside of the world";
}

}  // namespace
}  // namespace kintsugi::core
