// Roads: two hosts that both reach the controller cannot reach each other, attempt after attempt.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

// Three hosts of two ranks.
Policy ThreeHosts() {
  Policy policy = Bench::QuickPolicy(6);
  policy.node_ranks = 2;
  return policy;
}

// All fail, as when a dialed port does not answer until the limit: those of `dialed` know whom they dialed.
void FailRebuild(Bench& bench, const std::map<int, UnreachedPeer>& dialed) {
  ASSERT_EQ(bench.core.phase(), Phase::kRebuild);
  const size_t world = bench.standing.size();
  for (size_t r = 0; r < world; ++r) {
    PhaseDone done{.phase = Phase::kRebuild, .code = StatusCode::kDeadlineExceeded, .text = "no answer from a peer"};
    const auto found = dialed.find(static_cast<int>(r));
    if (found != dialed.end()) done.unreached.push_back(found->second);
    bench.Say(static_cast<int>(r), done);
  }
  bench.Pass(600ms);
}

Bench StandsInRebuild(Policy policy) {
  Bench bench(std::move(policy));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kRebuild;
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .text = "an all-reduce failed", .since = bench.now});
  return bench;
}

TEST(Roads, WhoCouldNotReachWhomIsToldAfterOneAttemptAndOnce) {
  Bench bench = StandsInRebuild(ThreeHosts());
  FailRebuild(bench, {{2, {Rank(5), 4711}}});
  const auto told = bench.All<RoadClosed>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].from, Rank(2));
  EXPECT_EQ(told[0].to, Rank(5));
  EXPECT_EQ(told[0].port, 4711u);
  FailRebuild(bench, {{2, {Rank(5), 4712}}});
  EXPECT_EQ(bench.All<RoadClosed>().size(), 1u);
  EXPECT_FALSE(bench.Ended());
  EXPECT_TRUE(bench.Killed().empty());
}

TEST(Roads, AfterThreeAttemptsWhatIsHeldIsSavedWhereNoSpareNodeIs) {
  Bench bench = StandsInRebuild(ThreeHosts());
  for (int attempt = 0; attempt < 3; ++attempt) FailRebuild(bench, {{2, {Rank(5), 4711}}});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  EXPECT_NE(bench.Ended()->text.find("saved step 5"), std::string::npos) << bench.Ended()->text;
  EXPECT_TRUE(bench.Killed().empty()) << "all are there, and save";
  const std::vector<RungReason> reasons = bench.All<IncidentClosed>().back().record.reasons;
  EXPECT_TRUE(std::any_of(reasons.begin(), reasons.end(), [](const RungReason& reason) {
    return reason.text.find("rank 2 could not reach rank 5 at port 4711 in 3 attempts") == 0;
  }));
}

TEST(Roads, ASpareNodeHasTheRanksOfTheHostThatMostCannotReach) {
  Bench bench = StandsInRebuild(ThreeHosts());
  bench.Feed(SpareNodes{1});
  // The first host reaches neither of the others, which reach each other.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (attempt == 2) bench.replacements_come = false;
    FailRebuild(bench, {{2, {Rank(0), 4711}}, {1, {Rank(4), 4712}}});
  }
  ASSERT_EQ(bench.All<NodeCutOff>().size(), 1u);
  EXPECT_EQ(bench.All<NodeCutOff>()[0].first, Rank(0));
  EXPECT_EQ(bench.Killed(), (std::set<int>{0, 1}));
  EXPECT_FALSE(bench.Ended());
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
  ASSERT_TRUE(bench.core.MayMove(Rank(0), 2)) << "where a spare node can begin them";
  bench.hold.reset();
  bench.replacements_come = true;
  bench.Feed(RanksMoved{Rank(0), 2, 3});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<StepDecided>().back().step, Step(5));
}

TEST(Roads, OfTwoThatCannotReachEachOtherItIsTheLaterOne) {
  Bench bench = StandsInRebuild(ThreeHosts());
  bench.Feed(SpareNodes{1});
  for (int attempt = 0; attempt < 3; ++attempt) FailRebuild(bench, {{3, {Rank(1), 4711}}});
  ASSERT_EQ(bench.All<NodeCutOff>().size(), 1u);
  EXPECT_EQ(bench.All<NodeCutOff>()[0].first, Rank(2));
}

TEST(Roads, AttemptsThatNameDifferentHostsAreNoClosedRoad) {
  Bench bench = StandsInRebuild(ThreeHosts());
  FailRebuild(bench, {{2, {Rank(5), 1}}});
  FailRebuild(bench, {{0, {Rank(5), 1}}});
  FailRebuild(bench, {{0, {Rank(2), 1}}});
  EXPECT_FALSE(bench.Ended());
  bench.hold.reset();
  for (int r = 0; r < 6; ++r) bench.Say(r, PhaseDone{.phase = Phase::kRebuild});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Roads, WhoDiedRefusesTooAndIsNoClosedRoad) {
  Bench bench = StandsInRebuild(ThreeHosts());
  bench.replacements_come = false;
  PhaseDone done{.phase = Phase::kRebuild, .code = StatusCode::kCommFailure, .text = "refused"};
  done.unreached.push_back({Rank(5), 4711});
  bench.Say(2, done);
  bench.Exit(5);
  EXPECT_TRUE(bench.All<RoadClosed>().empty());
}

TEST(Roads, BeforeTheRunBeganItEndsAsOneThatDidNotBegin) {
  Policy policy = ThreeHosts();
  policy.begins_again = true;
  Bench bench(policy);
  bench.hold = Phase::kRebuild;
  bench.Run();
  for (int attempt = 0; attempt < 3; ++attempt) FailRebuild(bench, {{2, {Rank(5), 4711}}});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
}

TEST(Roads, NonsenseOfARankNamesNobody) {
  Bench bench = StandsInRebuild(ThreeHosts());
  for (int attempt = 0; attempt < 3; ++attempt) FailRebuild(bench, {{2, {Rank(99), 1}}, {3, {Rank(3), 1}}, {4, {Rank(-1), 1}}});
  EXPECT_TRUE(bench.All<RoadClosed>().empty());
  EXPECT_FALSE(bench.Ended());
}

TEST(Attempts, AreToldAsTheyGrowAndEndInASave) {
  Bench bench = StandsInRebuild(ThreeHosts());
  int attempts = 1;
  // A rank is given up for its failures now and then: it comes back.
  for (; attempts < 60 && !bench.Ended(); ++attempts) {
    bench.Pass(2s);
    FailRebuild(bench, {});
  }
  ASSERT_TRUE(bench.Ended());
  const auto told = bench.All<AttemptsGrow>();
  ASSERT_GE(told.size(), 3u);
  EXPECT_EQ(told[0].attempts, 4);
  EXPECT_EQ(told[1].attempts, 8);
  EXPECT_EQ(told[2].attempts, 16);
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("saved step 5"), std::string::npos) << bench.Ended()->text;
}

}  // namespace
}  // namespace kintsugi::core
