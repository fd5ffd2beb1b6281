#include "runtime/core/step_choice.h"

#include <gtest/gtest.h>

#include "runtime/base/random.h"

namespace kintsugi::core {
namespace {

ReplicaMap MapOf(int world, int replicas) {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  GroupClaim all{{}, replicas};
  for (int r = 0; r < world; ++r) all.ranks.push_back(Rank(r));
  for (int r = 0; r < world; ++r) claims[Rank(r)][0] = all;
  return ReplicaMap::Build(world, claims).value();
}

LockReport Says(int rank, GateState state, uint64_t step, bool valid = true) {
  return {Rank(rank), state, Step(step), valid};
}

TEST(ChooseStep, AbandonsWhatNobodyBegan) {
  const auto choice = ChooseStep({Says(0, GateState::kAtGate, 8), Says(1, GateState::kCommitted, 7)}, MapOf(2, 2));
  EXPECT_EQ(choice.step, Step(7));
  EXPECT_EQ(choice.reason, StepReason::kAbandoned);
}

TEST(ChooseStep, GoesOnWithWhatOneHasBegun) {
  for (GateState begun : {GateState::kUpdating, GateState::kCommitted}) {
    const auto choice = ChooseStep({Says(0, GateState::kAtGate, 8), Says(1, begun, 8)}, MapOf(2, 2));
    EXPECT_EQ(choice.step, Step(8));
    EXPECT_EQ(choice.reason, StepReason::kUpdateBegun);
  }
}

TEST(ChooseStep, GoesOnPastAGateThatATornOrDamagedRankHasPassed) {
  const auto torn = ChooseStep({Says(0, GateState::kAtGate, 8), Says(1, GateState::kTorn, 8)}, MapOf(2, 2));
  EXPECT_EQ(torn.step, Step(8));
  const auto invalid =
      ChooseStep({Says(0, GateState::kAtGate, 8), Says(1, GateState::kCommitted, 8, false)}, MapOf(2, 2));
  EXPECT_EQ(invalid.step, Step(8));
}

TEST(ChooseStep, CountsADoubtfulCopyOnlyBesideASecondOne) {
  LockReport crashed = Says(0, GateState::kCommitted, 8), other = Says(1, GateState::kCommitted, 8);
  crashed.doubtful = other.doubtful = true;
  EXPECT_FALSE(ChooseStep({crashed}, MapOf(2, 2)).step);
  EXPECT_EQ(ChooseStep({crashed, other}, MapOf(2, 2)).step, Step(8));
  EXPECT_EQ(ChooseStep({crashed, Says(1, GateState::kAtGate, 8)}, MapOf(2, 2)).step, Step(8));
}

TEST(ChooseStep, CountsNoTornAndNoInvalidRank) {
  // Nobody else can reach what only they have begun.
  const auto torn = ChooseStep({Says(0, GateState::kCommitted, 7), Says(1, GateState::kTorn, 8)}, MapOf(2, 2));
  EXPECT_EQ(torn.step, Step(7));
  const auto invalid =
      ChooseStep({Says(0, GateState::kCommitted, 7), Says(1, GateState::kCommitted, 8, false)}, MapOf(2, 2));
  EXPECT_EQ(invalid.step, Step(7));
  // A damaged rank at its gate has begun nothing.
  const auto waits =
      ChooseStep({Says(0, GateState::kCommitted, 7), Says(1, GateState::kAtGate, 9, false)}, MapOf(2, 2));
  EXPECT_EQ(waits.step, Step(7));
}

TEST(ChooseStep, RefusesWhenAShardHasNoHolder) {
  // Ranks 0 and 2 hold one shard, 1 and 3 the other.
  const auto lost = ChooseStep({Says(0, GateState::kCommitted, 5), Says(2, GateState::kCommitted, 5)}, MapOf(4, 2));
  EXPECT_FALSE(lost.step);
  EXPECT_EQ(lost.reason, StepReason::kNoCommonStep);
  ASSERT_TRUE(lost.lack);
  EXPECT_EQ(lost.lack->step, Step(5));
  EXPECT_EQ(lost.lack->rank, Rank(1)) << "whose shard it is";
  EXPECT_EQ(ChooseStep({}, MapOf(4, 2)).reason, StepReason::kNobodyValid);
  EXPECT_EQ(ChooseStep({Says(0, GateState::kTorn, 5)}, MapOf(1, 1)).reason, StepReason::kNobodyValid);
}

TEST(ChooseStep, WithoutAGateTakesTheHighestStepThatEveryShardHolds) {
  // Shard {0, 2} stands at 5 and 6, shard {1, 3} at 6 and 5: 6 it is, and two ranks are repaired.
  const auto choice = ChooseStep({Says(0, GateState::kCommitted, 5), Says(1, GateState::kCommitted, 6),
                                  Says(2, GateState::kUpdating, 6), Says(3, GateState::kCommitted, 5)},
                                 MapOf(4, 2));
  EXPECT_EQ(choice.step, Step(6));
  // One kill, and there is no common step: what the gate is for.
  EXPECT_FALSE(ChooseStep({Says(0, GateState::kCommitted, 5), Says(1, GateState::kCommitted, 6),
                           Says(3, GateState::kCommitted, 6)},
                          MapOf(4, 2))
                   .step);
}

TEST(ChooseStep, RefusesAGateThatCannotBe) {
  EXPECT_FALSE(ChooseStep({Says(0, GateState::kAtGate, 0)}, MapOf(1, 1)).step);
}

// The rule in the words of the design, step by step from the top.
std::optional<Step> SlowChoice(const std::vector<LockReport>& reports, const ReplicaMap& replicas) {
  for (uint64_t s = 20;; --s) {
    bool begun = false;
    for (const LockReport& r : reports) {
      begun |= r.state != GateState::kAtGate && r.step == Step(s);                 // whatever became of it
      begun |= r.valid && r.state == GateState::kAtGate && r.step == Step(s + 1);  // committed s
    }
    bool every_shard = begun;
    for (const auto& shard : replicas.shards()) {
      bool held = false;
      for (const LockReport& r : reports)
        for (Rank holder : shard.holders) {
          if (r.rank != holder || !r.valid) continue;
          if (r.state == GateState::kCommitted || r.state == GateState::kUpdating) held |= r.step == Step(s);
          if (r.state == GateState::kAtGate) held |= r.step == Step(s) || r.step == Step(s + 1);
        }
      every_shard &= held;
    }
    if (every_shard) return Step(s);
    if (s == 0) return std::nullopt;
  }
}

TEST(ChooseStep, AgreesWithTheSlowVersion) {
  Random random(11);
  int found = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const int world = 2 << random.Below(3);
    const ReplicaMap replicas = MapOf(world, 2);
    const uint64_t base = 1 + random.Below(4);
    std::vector<LockReport> reports;
    for (int r = 0; r < world; ++r)
      if (!random.Chance(0.15))
        reports.push_back(
            Says(r, static_cast<GateState>(random.Below(4)), base + random.Below(2), !random.Chance(0.1)));
    const StepChoice choice = ChooseStep(reports, replicas);
    ASSERT_EQ(choice.step, SlowChoice(reports, replicas)) << "round " << round;
    ++(choice.step ? found : refused);
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(refused, 1000);
}

// With the gate: states that a barrier allows. Then every live rank that is not torn reaches S by itself.
TEST(ChooseStep, WithTheGateNoSurvivorNeedsARepair) {
  Random random(12);
  for (int round = 0; round < 20'000; ++round) {
    const int world = 2 << random.Below(3);
    const uint64_t k = 1 + random.Below(9);
    // Either somebody has passed gate k, and then all have entered it; or nobody has.
    const bool passed = random.Chance(0.5);
    std::vector<LockReport> reports;
    for (int r = 0; r < world; ++r) {
      if (r > 0 && random.Chance(0.2)) continue;  // dead
      const uint64_t pick = random.Below(3);
      if (passed)
        reports.push_back(Says(r,
                               pick == 0   ? GateState::kAtGate
                               : pick == 1 ? GateState::kUpdating
                                           : GateState::kCommitted,
                               k));
      else
        reports.push_back(pick == 0 ? Says(r, GateState::kAtGate, k) : Says(r, GateState::kCommitted, k - 1));
    }
    const StepChoice choice = ChooseStep(reports, MapOf(world, 1 << random.Below(2)));
    if (!choice.step) continue;  // a shard died out
    for (const LockReport& report : reports) EXPECT_TRUE(CanReach(report, *choice.step)) << "round " << round;
  }
}

}  // namespace
}  // namespace kintsugi::core
