// Thousands of seeded runs over several hosts, whose launchers elect who leads, are lost, cut off, drained and come back.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/seeds.h"

namespace kintsugi::sim {
namespace {

TEST(Hosts, KeepsItsPromisesWhenLaunchersElect) {
  const Campaign campaign = RunSeeds("elections", 1, 3001);
  for (FaultType type :
       {FaultType::kControllerKilled, FaultType::kControllerFrozen, FaultType::kStandbyKilled, FaultType::kNodeLost,
        FaultType::kNodesCut, FaultType::kNodesCutOneWay, FaultType::kNodesCutInHalves})
    EXPECT_GT(Struck(campaign, type), 150u) << FaultTypeName(type);
  for (const int exit_code : {kExitSuccess, kExitResumable}) EXPECT_GT(campaign.exits().at(exit_code), 300u);
}

TEST(Hosts, KeepsItsPromisesWithSpareNodes) {
  const Campaign campaign = RunSeeds("spare_nodes", 1, 2001);
  EXPECT_GT(campaign.moved(), 300u) << "blocks of ranks that were taken over";
  for (FaultType type : {FaultType::kNodeLost, FaultType::kSpareNodeLost, FaultType::kControllerKilled,
                         FaultType::kStandbyKilled, FaultType::kNodesCut})
    EXPECT_GT(Struck(campaign, type), 50u) << FaultTypeName(type);
}

TEST(Hosts, KeepsItsPromisesWhereLaunchersComeAnewBetweenCuts) {
  const Campaign campaign = RunSeeds("newcomers", 1, 2001);
  EXPECT_GT(Struck(campaign, FaultType::kNodesCut), 3000u);
  EXPECT_GT(Struck(campaign, FaultType::kStandbyKilled), 800u);
}

TEST(Hosts, KeepsItsPromisesWhereNodesAreDrained) {
  const Campaign campaign = RunSeeds("drains", 1, 2001);
  EXPECT_GT(Struck(campaign, FaultType::kDrain), 1500u);
  EXPECT_GT(campaign.moved(), 800u) << "blocks of ranks that a spare node took over";
}

// An incident has an end, and a host that others cannot reach is done without.
TEST(Hosts, KeepsItsPromisesWhereRoadsAreClosed) {
  const Campaign campaign = RunSeeds("roads", 1, 2001);
  EXPECT_GT(Struck(campaign, FaultType::kRoadClosed), 1300u);
  EXPECT_GT(campaign.moved(), 200u) << "blocks of ranks that a spare node took over";
  for (const int exit_code : {kExitSuccess, kExitResumable}) EXPECT_GT(campaign.exits().at(exit_code), 200u);
}

// No shard lies on it alone, and most of the ranks are left: whenever it is lost, the run goes on to its end.
TEST(Hosts, AHostThatIsLostForGoodDoesNotEndARunWithASpare) {
  const Profile profile = FindProfile("spare_nodes").value();
  int ran = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    Plan plan = DrawPlan(seed, profile, 0);
    plan.policy.max_respawns = 10;
    PlannedFault lost{
        .type = FaultType::kNodeLost, .rank = static_cast<int>(seed) % plan.policy.world_size, .count = 2};
    lost.at = std::chrono::milliseconds(600 + 40 * (seed % 50));
    const int node = plan.NodeOf(lost.rank);
    plan.faults = {lost};
    const ReplicaMap replicas = ReplicaMap::Build(plan.policy.world_size, plan.claims).value();
    const bool alone = std::any_of(replicas.shards().begin(), replicas.shards().end(), [&](const auto& shard) {
      return std::all_of(shard.holders.begin(), shard.holders.end(),
                         [&](Rank holder) { return plan.NodeOf(holder.value()) == node; });
    });
    if (alone || plan.gate == GateKind::kOff) continue;
    ++ran;
    const Outcome outcome = Cluster(plan).Run();
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << ": " << outcome.violations.front().ToString();
    EXPECT_EQ(outcome.exit_code, 0) << "seed " << seed << ": " << outcome.text;
  }
  EXPECT_GT(ran, 100);
}

TEST(Hosts, KeepsItsPromisesWhereHostsLeaveAndComeBack) {
  const Campaign campaign = RunSeeds("elastic_hosts", 1, 3001);
  EXPECT_GT(campaign.done_without(), 300u) << "hosts that the run went on without";
  EXPECT_TRUE(campaign.rungs().count(Rung::kGrow));
  EXPECT_GT(campaign.exits().at(kExitSuccess), 1500u);
}

TEST(Hosts, KeepTheirPromisesWhereTheyOnceDidNot) {
  RunSeeds("newcomers", 232615, 232616);      // two leaders of a launcher that forgot give the same lives
  RunSeeds("drains", 201302, 201303);         // the same
  RunSeeds("spare_nodes", 204181, 204182);    // whose ranks another node has leads a part
  RunSeeds("elastic_hosts", 215621, 215622);  // one that steps down stands for that very term
  RunSeeds("elections", 549513, 549514);      // ... or stood for an older one by then
}

TEST(Hosts, LosesNothingThatNodesHoldWhichComeBack) { RunSeeds("away", 1, 1001); }

}  // namespace
}  // namespace kintsugi::sim
