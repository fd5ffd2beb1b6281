// SnapshotRounds: when a snapshot is made, and whether it counts.
#include "runtime/core/snapshot_rounds.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr int kWorld = 4;

// Two shards, {0, 1} and {2, 3}, on two hosts: each rank's partner is one of the other pair.
class Rounds : public testing::Test {
 protected:
  Rounds() {
    std::map<Rank, std::map<int, GroupClaim>> claims;
    for (int r = 0; r < kWorld; ++r) claims[Rank(r)][0] = {{Rank(r / 2 * 2), Rank(r / 2 * 2 + 1)}, 2};
    replicas = ReplicaMap::Build(kWorld, claims).value();
  }

  void Arm(uint64_t begun) {
    if (!rounds->partners_known()) {
      EXPECT_EQ(rounds->ChoosePartners(replicas, {"a", "a", "b", "b"}), "");
    }
    rounds->Arm(Step(begun));
  }
  SnapshotReport Report(int owner, StatusCode code = StatusCode::kOk) const {
    SnapshotReport report;
    report.owner = Rank(owner);
    report.step = rounds->table().armed_step();
    report.code = code;
    report.text = code == StatusCode::kOk ? "" : "rank " + std::to_string(owner) + " could not";
    report.digests[0] = 10 + static_cast<uint64_t>(owner / 2);
    report.cost = 10ms;
    return report;
  }
  // Everybody says what it was told to make; `differs` holds other bits than its replica.
  SnapshotSettled Make(std::optional<StatusCode> rank_0_fails = {}, int differs = -1,
                       std::optional<Duration> step_time = {}) {
    bool all = false;
    std::vector<std::pair<Rank, SnapshotOrder>> orders;
    for (int r = 0; r < kWorld; ++r) orders.emplace_back(Rank(r), rounds->OrderFor(Rank(r)).value());
    for (const auto& [rank, order] : orders) {
      for (const Rank owner : order.of) {
        if (owner == Rank(0) && rank_0_fails) continue;  // nothing was sent
        SnapshotReport kept = Report(owner.value());
        if (owner.value() == differs) kept.digests[0] = 99;
        all = rounds->Take(rank, kept) || all;
      }
      SnapshotReport own =
          Report(rank.value(), rank == Rank(0) ? rank_0_fails.value_or(StatusCode::kOk) : StatusCode::kOk);
      if (rank.value() == differs) own.digests[0] = 99;
      all = rounds->Take(rank, own) || all;
    }
    EXPECT_TRUE(all) << "somebody has not spoken";
    return rounds->Settle(replicas, step_time);
  }

  ReplicaMap replicas;
  std::optional<SnapshotRounds> rounds{std::in_place, 4, false};
};

TEST_F(Rounds, AimAtTheNextMultipleThatNobodyHasBegun) {
  Arm(6);
  EXPECT_EQ(rounds->table().armed_step(), Step(8));
  EXPECT_FALSE(rounds->MayArm()) << "one at a time";
  const SnapshotOrder order = rounds->OrderFor(Rank(0)).value();
  EXPECT_EQ(order.step, Step(8));
  EXPECT_GE(order.partner.value(), 2) << "outside of its replica group";
  ASSERT_EQ(order.of.size(), 1u);
  rounds->Disarm();
  Arm(8);
  EXPECT_EQ(rounds->table().armed_step(), Step(12)) << "8 was begun";
}

TEST_F(Rounds, DoNotWaitForTheirTurnWhereAPartOfTheNewestIsLost) {
  rounds->Forget(Rank(0));
  Arm(1);
  EXPECT_EQ(rounds->table().armed_step(), Step(4)) << "there was nothing to lose";
  Make();
  rounds->Forget(Rank(1));
  Arm(5);
  EXPECT_EQ(rounds->table().armed_step(), Step(6));
  Make(StatusCode::kUnavailable);
  Arm(6);
  EXPECT_EQ(rounds->table().armed_step(), Step(8)) << "late: tried again as soon as orders arrive";
  rounds->Disarm();
  Arm(9);
  EXPECT_EQ(rounds->table().armed_step(), Step(11)) << "a fault overtook it";
  EXPECT_TRUE(Make().counts);
  Arm(11);
  EXPECT_EQ(rounds->table().armed_step(), Step(16)) << "whole again";
  rounds->Disarm();
  rounds->Spoil(Rank(2));
  Arm(12);
  EXPECT_EQ(rounds->table().armed_step(), Step(14));
  EXPECT_FALSE(Make({}, 3).counts);
  Arm(14);
  EXPECT_EQ(rounds->table().armed_step(), Step(16)) << "copies that differ do so in the next step too";
}

TEST_F(Rounds, CountWhereAllCopiesAgreeAndKeepTheOneBeforeWhereTheyDoNot) {
  Arm(1);
  const SnapshotSettled first = Make();
  EXPECT_TRUE(first.counts);
  EXPECT_EQ(first.step, Step(4));
  EXPECT_EQ(first.cost, 10ms);
  Arm(5);
  const SnapshotSettled second = Make({}, 3);
  EXPECT_FALSE(second.counts);
  EXPECT_NE(second.text.find("differs between ranks"), std::string::npos) << second.text;
  EXPECT_EQ(rounds->table().newest(), Step(4));
  EXPECT_EQ(rounds->made(), 1u);
  EXPECT_EQ(rounds->abandoned(), 1u);
  EXPECT_TRUE(rounds->MayArm());
}

TEST_F(Rounds, ThatWereLateAreOrderedTwiceAsFarAhead) {
  std::vector<uint64_t> ahead;
  for (int round = 0; round < 12; ++round) {
    Arm(400);
    ahead.push_back(rounds->table().armed_step().value() - 400);
    EXPECT_FALSE(Make(StatusCode::kUnavailable).counts);
  }
  EXPECT_EQ(ahead, (std::vector<uint64_t>{4, 4, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024}));
}

TEST_F(Rounds, OneThatCanMakeNoneEndsThemForGood) {
  Arm(1);
  EXPECT_FALSE(Make(StatusCode::kFailedPrecondition).counts);
  EXPECT_EQ(rounds->off(), "rank 0 could not");
  EXPECT_FALSE(rounds->MayArm());
  EXPECT_THROW(rounds->Arm(Step(1)), CheckFailure);
  EXPECT_EQ(rounds->FindUsable(replicas, {}).why, "rank 0 could not");
}

TEST_F(Rounds, ByCostFollowWhatTheyCost) {
  rounds.emplace(0, true);
  Arm(1);
  EXPECT_EQ(rounds->table().armed_step(), Step(2));
  EXPECT_TRUE(Make({}, -1, Duration(10ms)).counts);  // a copy of one step's length: one in a hundred
  Arm(2);
  EXPECT_EQ(rounds->table().armed_step(), Step(100));
}

TEST_F(Rounds, AReloadGoesBackToNoneThatMayHoldDamage) {
  EXPECT_FALSE(rounds->FindUsable(replicas, {}).step);
  Arm(1);
  Make();
  EXPECT_EQ(rounds->FindUsable(replicas, {}).step, Step(4));
  EXPECT_EQ(rounds->FindUsable(replicas, Step(5)).step, Step(4));
  const SnapshotTable::Usable damaged = rounds->FindUsable(replicas, Step(4));
  EXPECT_FALSE(damaged.step);
  EXPECT_EQ(damaged.why, "the in-memory snapshot of step 4 may hold damage");
}

TEST_F(Rounds, DamageOfALoneCopyDropsWhatWasCopiedSinceTheStepBefore) {
  std::map<Rank, std::map<int, GroupClaim>> alone;
  for (int r = 0; r < kWorld; ++r) alone[Rank(r)][0] = {{Rank(r)}, 1};
  const ReplicaMap lone = ReplicaMap::Build(kWorld, alone).value();
  Arm(1);
  Make();
  rounds->Suspect(replicas, Rank(1), Step(5));
  EXPECT_EQ(rounds->table().newest(), Step(4)) << "its replica's digest has told";
  rounds->Suspect(lone, Rank(1), Step(6));
  EXPECT_EQ(rounds->table().newest(), Step(4)) << "copied before the damage can have been";
  rounds->Suspect(lone, Rank(1), Step(5));
  EXPECT_EQ(rounds->table().newest(), Step());
}

TEST_F(Rounds, AreNotSettledBeforeAllHaveSpokenNorBegunWithoutPartners) {
  EXPECT_THROW(rounds->Arm(Step(1)), CheckFailure) << "no partners";
  Arm(1);
  EXPECT_THROW(rounds->Settle(replicas, {}), CheckFailure);
  EXPECT_THROW(rounds->ChoosePartners(replicas, {"a", "a", "b", "b"}), CheckFailure);
  rounds->Disarm();
  rounds->ForgetPartners();
  EXPECT_FALSE(rounds->partners_known());
  EXPECT_FALSE(rounds->OrderFor(Rank(0))) << "no round is under way";
}

TEST(SnapshotRounds, AreNotMadeWhereNobodyWantsThem) {
  const SnapshotRounds rounds(0, false);
  EXPECT_FALSE(rounds.MayArm());
  const SnapshotTable::Usable usable = rounds.FindUsable(ReplicaMap(), {});
  EXPECT_FALSE(usable.step);
  EXPECT_EQ(usable.why, "");
}

TEST(SnapshotRounds, NameWhoKeepsItsCopyAlone) {
  SnapshotRounds rounds(1, false);
  std::map<Rank, std::map<int, GroupClaim>> pair;
  for (int r = 0; r < 2; ++r) pair[Rank(r)][0] = {{Rank(0), Rank(1)}, 2};
  const std::string alone = rounds.ChoosePartners(ReplicaMap::Build(2, pair).value(), {"a", "b"});
  EXPECT_EQ(alone.find("rank 0 has no partner for its in-memory snapshots: "), 0u) << alone;
  EXPECT_NE(alone.find("(and 1 more); they are kept by their owners alone"), std::string::npos) << alone;
  rounds.Arm(Step(1));
  EXPECT_EQ(rounds.OrderFor(Rank(0))->partner, Rank(-1));
}

}  // namespace
}  // namespace kintsugi::core
