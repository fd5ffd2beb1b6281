// Whom a launcher obeys, and when it gives way.
#include "runtime/core/allegiance.h"

#include <gtest/gtest.h>

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kThisMoment(100s);

ElectionCore Following(uint64_t term) {
  ElectionCore election({1, 4, 60s});
  election.Follow(term);
  return election;
}

TEST(Allegiance, NothingOlderThanTheNewestObeyedIsObeyed) {
  const ElectionCore election = Following(2);
  EXPECT_TRUE(MayObey(election, {2, 1}, {2, 1}, kThisMoment));
  EXPECT_TRUE(MayObey(election, {2, 1}, {3, 1}, kThisMoment));
  EXPECT_FALSE(MayObey(election, {2, 2}, {2, 1}, kThisMoment)) << "one number, two parts";
  EXPECT_FALSE(MayObey(election, {2, 1}, {1, 9}, kThisMoment));
}

TEST(Allegiance, AFreshPromiseExcludesTheLeaderBefore) {
  ElectionCore election = Following(2);
  election.Lose(kThisMoment);
  ASSERT_TRUE(election.OnRequest(3, 5, kThisMoment));
  EXPECT_FALSE(MayObey(election, {2, 1}, {2, 1}, kThisMoment));
  EXPECT_FALSE(
      AnswerLeads(election, {{2, 1}, std::nullopt, Term{2, 1}, false}, {.term = {2, 1}}, kThisMoment).connects);
  EXPECT_TRUE(MayObey(election, {2, 1}, {5, 4}, kThisMoment));
}

TEST(Allegiance, ALeaderGivesWayToANewerTermOnly) {
  const ElectionCore election = Following(2);
  const Allegiance leads{{2, 2}, Term{2, 2}, Term{2, 2}, true};
  const LeadsAnswer newer = AnswerLeads(election, leads, {.term = {3, 1}}, kThisMoment);
  EXPECT_TRUE(newer.steps_down);
  EXPECT_TRUE(newer.connects);
  for (const Term term : {Term{2, 2}, Term{2, 1}, Term{1, 9}}) {
    const LeadsAnswer answer = AnswerLeads(election, leads, {.term = term}, kThisMoment);
    EXPECT_FALSE(answer.steps_down || answer.connects) << term.number << "." << term.controller_id;
  }
}

TEST(Allegiance, AFollowerLinksToWhatIsNew) {
  const ElectionCore election = Following(2);
  const Allegiance connected{{2, 2}, std::nullopt, Term{2, 2}, true};
  EXPECT_FALSE(AnswerLeads(election, connected, {.term = {2, 2}}, kThisMoment).connects) << "it is there already";
  EXPECT_TRUE(AnswerLeads(election, connected, {.term = {3, 1}}, kThisMoment).connects);
  const Allegiance trying{{2, 2}, std::nullopt, Term{2, 2}, false};
  EXPECT_FALSE(AnswerLeads(election, trying, {.term = {2, 2}, .same_place = true}, kThisMoment).connects)
      << "it tries that very place";
  EXPECT_TRUE(AnswerLeads(election, trying, {.term = {2, 2}}, kThisMoment).connects)
      << "the same leader listens elsewhere";
  EXPECT_TRUE(AnswerLeads(election, {{2, 2}, std::nullopt, std::nullopt, false}, {.term = {2, 2}, .same_place = true},
                          kThisMoment)
                  .connects);
}

TEST(Allegiance, NobodyWhoKnowsOfAMoveTurnsToAPartThatMissedIt) {
  const ElectionCore election = Following(2);
  Placement before, moved;
  before.Begin(2);
  moved.Begin(2);
  moved.Move(2, 1, 3, Generation(5));
  const Allegiance leads{{2, 2}, Term{2, 2}, Term{2, 2}, true, moved}, follows{{2, 2}, {}, Term{2, 2}, true, moved},
      lost{{2, 2}, {}, Term{2, 2}, false, moved};
  for (const Allegiance& mine : {leads, follows, lost}) {
    const LeadsAnswer part =
        AnswerLeads(election, mine, {.term = {7, 2}, .part = true, .placement = before}, kThisMoment);
    EXPECT_FALSE(part.steps_down || part.connects);
    EXPECT_TRUE(AnswerLeads(election, mine, {.term = {7, 2}, .part = true, .placement = moved}, kThisMoment).connects);
    EXPECT_TRUE(AnswerLeads(election, mine, {.term = {7, 2}, .placement = before}, kThisMoment).connects)
        << "one with a majority need not know of a move that nobody consented to";
  }
  // A newer leader that moved nothing: what was at home is so still.
  Placement later;
  later.Begin(3);
  EXPECT_TRUE(AnswerLeads(election, {{3, 1}, {}, Term{3, 1}, true, later},
                          {.term = {7, 2}, .part = true, .placement = before}, kThisMoment)
                  .connects);
  EXPECT_TRUE(AnswerLeads(election, {{2, 2}, {}, Term{2, 2}, true, before},
                          {.term = {7, 2}, .part = true, .placement = moved}, kThisMoment)
                  .connects)
      << "the part knows more";
}

}  // namespace
}  // namespace kintsugi::core
