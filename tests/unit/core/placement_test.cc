// Where ranks live: which of two placements counts, when a spare node takes a block over, and what the controller and an
// election make of it.
#include "runtime/core/placement.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/core/election.h"
#include "runtime/core/majority.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;
using Life = ControllerCore::Life;

constexpr TimePoint kPlaceTime = TimePoint(1000s);

TEST(Placement, EveryBlockIsAtHomeUntilItIsMoved) {
  Placement placement;
  EXPECT_EQ(placement.NodeOf(2), 2);
  EXPECT_EQ(placement.BlockOf(2, 3), 2);
  EXPECT_EQ(placement.BlockOf(3, 3), std::nullopt);
  placement.Move(1, 2, 3, Generation(5));
  EXPECT_EQ(placement.NodeOf(2), 3);
  EXPECT_EQ(placement.BlockOf(3, 3), 2);
  EXPECT_EQ(placement.BlockOf(2, 3), std::nullopt) << "the node that lost it is a spare";
  placement.Move(1, 0, 2, Generation(6));
  EXPECT_EQ(placement.BlockOf(2, 3), 0);
  EXPECT_THROW(placement.Move(1, 1, 2, Generation(7)), CheckFailure) << "a node has one block";
  EXPECT_THROW(placement.Move(1, 1, 1, Generation(7)), CheckFailure) << "it is there";
}

TEST(Placement, TheNewerOneCounts) {
  Placement first, second;
  first.Begin(1);
  first.Move(1, 2, 3, Generation(5));
  EXPECT_TRUE(second.Learn(first));
  EXPECT_FALSE(second.Learn(first));
  EXPECT_EQ(second.NodeOf(2), 3);
  // A later leader that never heard of the move: nobody who consented to anything did.
  Placement later;
  later.Begin(2);
  EXPECT_TRUE(second.Learn(later));
  EXPECT_EQ(second.NodeOf(2), 2);
  EXPECT_FALSE(second.Learn(first));
}

// A part's leader begins no version of its own: what it missed stays newer than what it knows.
TEST(Placement, AMoveBeginsItsLeadersVersion) {
  Placement whole, part;
  whole.Begin(1);
  part = whole;
  whole.Move(1, 2, 3, Generation(5));
  EXPECT_FALSE(whole.Learn(part));
  EXPECT_EQ(whole.version(), (Placement::Version{1, 1}));
  part.Move(7, 0, 4, Generation(6));
  EXPECT_EQ(part.version(), (Placement::Version{7, 1}));
}

TEST(Placement, ABlockThatWasMovedHasWeightOnceTheRunWentOn) {
  Placement placement;
  EXPECT_TRUE(placement.Counts(2, Generation()));
  placement.Move(1, 2, 3, Generation(5));
  EXPECT_FALSE(placement.Counts(2, Generation(5)));
  EXPECT_TRUE(placement.Counts(2, Generation(6)));
  EXPECT_TRUE(placement.Counts(1, Generation(5)));
}

std::optional<Takeover> Due(const Placement& placement, const std::vector<Host>& hosts, bool may_move = true) {
  return NextTakeover(placement, 3, hosts, 5s, kPlaceTime, [may_move](int) { return may_move; });
}

TEST(NextTakeover, WaitsForTheNodeAndForTheRun) {
  const auto away = [](Duration length) {
    return std::vector<Host>{
        {0, true, {}}, {1, true, {}}, {2, false, kPlaceTime - length}, {3, true, {}}, {4, true, {}}};
  };
  EXPECT_FALSE(Due({}, away(4s)));
  EXPECT_FALSE(Due({}, away(5s), false));
  const auto due = Due({}, away(5s));
  ASSERT_TRUE(due);
  EXPECT_EQ(due->block, 2);
  EXPECT_EQ(due->from, 2);
  EXPECT_EQ(due->to, 3);
}

TEST(NextTakeover, NeedsASpareThatIsHere) {
  EXPECT_FALSE(Due({}, {{0, true, {}}, {1, true, {}}, {2, false, {}}, {3, false, {}}}));
  // The node that came back without its ranks is one.
  Placement placement;
  placement.Move(1, 2, 3, Generation(1));
  const auto due = Due(placement, {{0, true, {}}, {1, true, {}}, {2, true, {}}, {3, false, {}}});
  ASSERT_TRUE(due);
  EXPECT_EQ(due->block, 2);
  EXPECT_EQ(due->from, 3);
  EXPECT_EQ(due->to, 2);
}

// Ranks 4 and 5 of six, on a node of which nothing is heard any more; a majority waits for their replacements.
Bench WithANodeAway() {
  Policy policy = Bench::QuickPolicy(6);
  policy.needs_consent = true;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.silent = bench.mute = {4, 5};
  bench.replacements_come = false;
  bench.Pass(policy.silence + 50ms);
  return bench;
}

TEST(MovedRanks, BeginElsewhereInAGenerationOfTheirOwn) {
  Bench bench = WithANodeAway();
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  EXPECT_TRUE(bench.core.MayMove(Rank(4), 2));
  EXPECT_FALSE(bench.core.MayMove(Rank(2), 2)) << "they are there";
  EXPECT_FALSE(bench.core.MayMove(Rank(4), 3)) << "outside the world";
  const Generation before = bench.core.generation();
  const Incarnation asked = bench.member(4).incarnation;
  const int respawns = bench.member(4).respawns;
  bench.silent.clear();
  bench.mute.clear();
  bench.replacements_come = true;
  bench.Feed(RanksMoved{Rank(4), 2, 3});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_GT(bench.core.generation(), before);
  EXPECT_GT(bench.member(4).incarnation, asked);
  EXPECT_EQ(bench.member(4).respawns, respawns) << "a node's absence is no failure of its ranks";
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.attempts, 2);
  EXPECT_NE(record.earlier.back().ended_by.find("node 3 takes ranks 4 to 5 over"), std::string::npos);
}

// Where the node's own processes may live on, a new one that holds nothing yet proves nothing of them.
TEST(MovedRanks, CountForNobodyUntilTheyAreInTheRun) {
  Bench bench = WithANodeAway();
  bench.replacements_come = true;
  bench.hold = Phase::kRebuild;
  bench.mute.clear();
  bench.Feed(RanksMoved{Rank(4), 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kRebuild);
  ASSERT_EQ(bench.member(4).life, Life::kReady);
  EXPECT_TRUE(bench.member(4).left_behind);
  bench.Exit(4);  // of the new one: it tells nothing of the other
  EXPECT_TRUE(bench.member(4).left_behind);
  bench.hold.reset();
  bench.silent = {};
  bench.Exit(5);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_FALSE(bench.member(4).left_behind);
  EXPECT_FALSE(bench.member(5).left_behind);
}

TEST(MovedRanks, ALostGenerationIsNotBegunByHalfOfThem) {
  // Two of four live, one has ended, one was begun elsewhere: without the last one it is no majority.
  Policy policy;
  policy.needs_consent = true;
  Majority majority(policy);
  Roster members(4);
  members.SetLife(members.At(Rank(1)), Life::kReady);
  members.SetLife(members.At(Rank(2)), Life::kReady);
  members.At(Rank(0)).unconfirmed = Incarnation(1);
  members.At(Rank(3)).trust.Find(true);
  EXPECT_TRUE(majority.Has(members, kPlaceTime));
  members.At(Rank(3)).left_behind = true;
  EXPECT_FALSE(majority.Has(members, kPlaceTime));
}

TEST(MovedRanks, AreNotMovedWhereTheRunStandsElsewhere) {
  Bench bench(Bench::QuickPolicy(6));
  bench.Run();
  const Generation before = bench.core.generation();
  EXPECT_FALSE(bench.core.MayMove(Rank(4), 2));
  bench.Feed(RanksMoved{Rank(4), 2, 3});
  bench.Feed(RanksMoved{Rank(-1), 2, 3});
  bench.Feed(RanksMoved{Rank(5), INT32_MAX, 3});
  EXPECT_EQ(bench.core.generation(), before);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(MovedRanks, WhoWasReplacedCannotCountForThemInAnElection) {
  ElectionCore core({.self = 0, .world_size = 6, .turn = std::nullopt, .local_ranks = 2});
  core.Follow(1);
  core.Lose(kPlaceTime);
  const ElectionCore::LocalRanks own{{Rank(0), Rank(1)}, {}}, replaced{{Rank(4), Rank(5)}, {}};
  ElectionCore::Decision asked;
  TimePoint now = kPlaceTime;
  while (!asked.ask) asked = core.OnTick(now = now + 10ms, own);
  ElectionCore unknowing = core;
  EXPECT_TRUE(unknowing.OnVote(2, asked.ask->term, replaced).lead);
  Placement placement;
  placement.Move(1, 2, 3, Generation(5));
  core.SetPlacement(placement);
  EXPECT_FALSE(core.OnVote(2, asked.ask->term, replaced).lead) << "node 3 has its ranks";
  EXPECT_TRUE(core.OnVote(3, asked.ask->term, replaced).lead);
}

TEST(MovedRanks, WhoHasNoneLeadsNoPart) {
  ElectionCore core({.self = 2, .world_size = 6, .patience = 10s, .turn = std::nullopt, .local_ranks = 2});
  core.Follow(1);
  core.SetHasRanks(false);
  core.Lose(kPlaceTime);
  const ElectionCore::Decision decision = core.OnTick(kPlaceTime + 11s, {});
  EXPECT_TRUE(decision.give_up);
  EXPECT_FALSE(decision.lead);
}

}  // namespace
}  // namespace kintsugi::core
