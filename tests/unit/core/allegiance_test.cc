// Whom a launcher obeys, and when it gives way.
#include "runtime/core/allegiance.h"

#include <gtest/gtest.h>

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow(100s);

ElectionCore Following(uint64_t term) {
  ElectionCore election({1, 4, 60s});
  election.Follow(term);
  return election;
}

TEST(Allegiance, NothingOlderThanTheNewestObeyedIsObeyed) {
  const ElectionCore election = Following(2);
  EXPECT_TRUE(MayObey(election, {2, 1}, {2, 1}, kNow));
  EXPECT_TRUE(MayObey(election, {2, 1}, {3, 1}, kNow));
  EXPECT_FALSE(MayObey(election, {2, 2}, {2, 1}, kNow)) << "one number, two parts";
  EXPECT_FALSE(MayObey(election, {2, 1}, {1, 9}, kNow));
}

TEST(Allegiance, AFreshPromiseExcludesTheLeaderBefore) {
  ElectionCore election = Following(2);
  election.Lose(kNow);
  ASSERT_TRUE(election.OnRequest(3, 5, kNow));
  EXPECT_FALSE(MayObey(election, {2, 1}, {2, 1}, kNow));
  EXPECT_FALSE(AnswerLeads(election, {{2, 1}, std::nullopt, Term{2, 1}, false}, {2, 1}, false, kNow).links);
  EXPECT_TRUE(MayObey(election, {2, 1}, {5, 4}, kNow));
}

TEST(Allegiance, ALeaderGivesWayToANewerTermOnly) {
  const ElectionCore election = Following(2);
  const Allegiance leads{{2, 2}, Term{2, 2}, Term{2, 2}, true};
  const LeadsAnswer newer = AnswerLeads(election, leads, {3, 1}, false, kNow);
  EXPECT_TRUE(newer.steps_down);
  EXPECT_TRUE(newer.links);
  for (const Term term : {Term{2, 2}, Term{2, 1}, Term{1, 9}}) {
    const LeadsAnswer answer = AnswerLeads(election, leads, term, false, kNow);
    EXPECT_FALSE(answer.steps_down || answer.links) << term.number << "." << term.controller_id;
  }
}

TEST(Allegiance, AFollowerLinksToWhatIsNew) {
  const ElectionCore election = Following(2);
  const Allegiance linked{{2, 2}, std::nullopt, Term{2, 2}, true};
  EXPECT_FALSE(AnswerLeads(election, linked, {2, 2}, false, kNow).links) << "it is there already";
  EXPECT_TRUE(AnswerLeads(election, linked, {3, 1}, false, kNow).links);
  const Allegiance trying{{2, 2}, std::nullopt, Term{2, 2}, false};
  EXPECT_FALSE(AnswerLeads(election, trying, {2, 2}, true, kNow).links) << "it tries that very place";
  EXPECT_TRUE(AnswerLeads(election, trying, {2, 2}, false, kNow).links) << "the same leader listens elsewhere";
  EXPECT_TRUE(AnswerLeads(election, {{2, 2}, std::nullopt, std::nullopt, false}, {2, 2}, true, kNow).links);
}

}  // namespace
}  // namespace kintsugi::core
