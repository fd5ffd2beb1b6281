// The parts of in-memory snapshots: places, partners, the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "callbacks/state/snapshot_slots.h"
#include "runtime/base/random.h"
#include "runtime/core/snapshot_partners.h"
#include "runtime/core/snapshot_table.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

GroupClaim Group(std::vector<int> ranks, int replicas) {
  GroupClaim claim;
  claim.replicas = replicas;
  for (int rank : ranks) claim.ranks.push_back(Rank(rank));
  return claim;
}

// Groups of `size` neighbours, each with `replicas`.
ReplicaMap Blocks(int world, int size, int replicas) {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (int first = 0; first < world; first += size) {
    std::vector<int> ranks;
    for (int r = first; r < first + size; ++r) ranks.push_back(r);
    for (int r : ranks) claims[Rank(r)][0] = Group(ranks, replicas);
  }
  return ReplicaMap::Build(world, claims).value();
}

TEST(SnapshotSlots, NeverGiveThePlaceOfWhatIsKept) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    SnapshotSlots slots;
    Step kept, step;
    for (int i = 0; i < 30; ++i) {
      step = Step(step.value() + 1 + random.Below(3));
      const int place = slots.Begin(step, kept);
      if (kept.value() > 0) {
        ASSERT_NE(slots.Find(kept), place) << "the newest that counts is overwritten";
      }
      EXPECT_FALSE(slots.Find(step)) << "what is in the making is not whole";
      if (random.Chance(0.3)) {
        slots.Abandon();
        EXPECT_FALSE(slots.Find(step));
      } else {
        slots.Finish();
        EXPECT_EQ(slots.Find(step), place);
        if (random.Chance(0.7)) kept = step;
      }
      if (kept.value() > 0) {
        ASSERT_TRUE(slots.Find(kept));
      }
    }
  }
}

TEST(SnapshotSlots, AStepThatComesAgainTakesItsOwnPlace) {
  SnapshotSlots slots;
  slots.Begin(Step(4), Step());
  slots.Finish();
  const int eight = slots.Begin(Step(8), Step(4));
  slots.Finish();
  EXPECT_EQ(slots.Begin(Step(8), Step(4)), eight);
  EXPECT_FALSE(slots.Find(Step(8)));
}

// The rule word by word.
std::vector<SnapshotPartner> Slowly(const ReplicaMap& replicas, const std::vector<std::string>& hosts) {
  const int n = static_cast<int>(hosts.size());
  std::vector<int> kept(hosts.size(), 0);
  std::vector<SnapshotPartner> partners;
  for (int rank = 0; rank < n; ++rank) {
    const auto& group = replicas.Partners(Rank(rank));
    std::vector<int> fit, elsewhere;
    for (int i = 1; i < n; ++i) {
      const int other = (rank + i) % n;
      if (std::find(group.begin(), group.end(), Rank(other)) != group.end()) continue;
      fit.push_back(other);
      if (hosts[static_cast<size_t>(other)] != hosts[static_cast<size_t>(rank)]) elsewhere.push_back(other);
    }
    const auto& from = elsewhere.empty() ? fit : elsewhere;
    if (from.empty()) {
      partners.push_back({std::nullopt, "x"});
      continue;
    }
    const int chosen = *std::min_element(from.begin(), from.end(), [&](int a, int b) {
      return kept[static_cast<size_t>(a)] < kept[static_cast<size_t>(b)];
    });
    ++kept[static_cast<size_t>(chosen)];
    partners.push_back({Rank(chosen), elsewhere.empty() ? "x" : ""});
  }
  return partners;
}

TEST(SnapshotPartners, AreThoseOfTheSlowRule) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    const int size = 1 << random.Below(4), world = size * static_cast<int>(1 + random.Below(6));
    const ReplicaMap replicas = Blocks(
        world, size, 1 << random.Below(static_cast<uint64_t>(std::countr_zero(static_cast<unsigned>(size))) + 1));
    std::vector<std::string> hosts;
    const uint64_t nodes = 1 + random.Below(4);
    const bool mixed = random.Chance(0.3);
    for (int r = 0; r < world; ++r)
      hosts.push_back(std::to_string(mixed ? random.Below(nodes)
                                           : static_cast<uint64_t>(r) * nodes / static_cast<uint64_t>(world)));
    const auto chosen = ChooseSnapshotPartners(replicas, hosts), slow = Slowly(replicas, hosts);
    ASSERT_EQ(chosen.size(), slow.size());
    for (size_t r = 0; r < chosen.size(); ++r) {
      EXPECT_EQ(chosen[r].rank, slow[r].rank) << "rank " << r << " of " << world << ", round " << round;
      EXPECT_EQ(chosen[r].why.empty(), slow[r].why.empty());
    }
  }
}

TEST(SnapshotPartners, SayWhyNobodyFits) {
  const auto pair = ChooseSnapshotPartners(Blocks(2, 2, 2), {"a", "b"});
  EXPECT_FALSE(pair[0].rank);
  EXPECT_NE(pair[0].why.find("replica groups"), std::string::npos) << pair[0].why;
  const auto lone = ChooseSnapshotPartners(Blocks(1, 1, 1), {"a"});
  EXPECT_FALSE(lone[0].rank);
  const auto same_host = ChooseSnapshotPartners(Blocks(4, 4, 2), {"a", "a", "a", "a"});
  EXPECT_EQ(same_host[0].rank, Rank(1));
  EXPECT_NE(same_host[0].why.find("another host"), std::string::npos) << same_host[0].why;
}

TEST(SnapshotPartners, LieOutsideTheShardWithTheFewestCopiesWhereEverybodySharesSomething) {
  const GroupClaim all{{Rank(0), Rank(1), Rank(2), Rank(3)}, 4};
  std::map<Rank, std::map<int, GroupClaim>> alone, pairs;
  for (int r = 0; r < 4; ++r) {
    alone[Rank(r)] = {{0, all}, {7, {{Rank(r)}, 1}}};
    pairs[Rank(r)] = {{0, all}, {7, {{Rank(r % 2), Rank(r % 2 + 2)}, 2}}};
  }
  std::set<Rank> keepers;
  for (const auto& partner : ChooseSnapshotPartners(*ReplicaMap::Build(4, alone), {"a", "a", "b", "b"})) {
    EXPECT_TRUE(partner.rank && keepers.insert(*partner.rank).second) << partner.why;
    EXPECT_EQ(partner.why, "");
  }
  const auto chosen = ChooseSnapshotPartners(*ReplicaMap::Build(4, pairs), {"a", "b", "c", "d"});
  for (int r = 0; r < 4; ++r) EXPECT_EQ((chosen[static_cast<size_t>(r)].rank.value().value() + r) % 2, 1);
}

TEST(SnapshotPartners, OfAHundredThousandRanksKeepOneCopyEach) {
  constexpr int kWorld = 100'000;
  std::vector<std::string> hosts;
  for (int r = 0; r < kWorld; ++r) hosts.push_back(std::to_string(r / 8));
  std::set<Rank> keepers;
  for (const SnapshotPartner& partner : ChooseSnapshotPartners(Blocks(kWorld, 8, 2), hosts))
    ASSERT_TRUE(partner.rank && keepers.insert(*partner.rank).second);
}

TEST(SnapshotInterval, KeepsTheCostBelowItsShare) {
  EXPECT_EQ(SnapshotInterval(1ms, 1s), 1u);
  EXPECT_EQ(SnapshotInterval(50ms, 1s), 5u);
  EXPECT_EQ(SnapshotInterval(51ms, 1s), 6u);
  EXPECT_EQ(SnapshotInterval(0ms, 1s), 1u);
  EXPECT_EQ(SnapshotInterval(1ms, 0s), 1u) << "nothing is learnt yet";
}

// Four ranks, shards {0, 2} and {1, 3}; each keeps the copy of its neighbour below.
class Table : public testing::Test {
 protected:
  Table() : replicas(Blocks(4, 4, 2)) {
    for (int r = 0; r < 4; ++r) partners.push_back({Rank((r + 1) % 4), ""});
  }
  static SnapshotReport Report(int owner, uint64_t step, StatusCode code = StatusCode::kOk, uint64_t digest = 0) {
    SnapshotReport report;
    report.owner = Rank(owner);
    report.step = Step(step);
    report.code = code;
    report.text = code == StatusCode::kOk ? "" : "why";
    report.digests[0] = digest ? digest : step * 10 + static_cast<uint64_t>(owner % 2);
    report.cost = 1ms;
    return report;
  }
  void TakeAll(uint64_t step) {
    for (int r = 0; r < 4; ++r) {
      EXPECT_FALSE(table.settled());
      EXPECT_TRUE(table.Take(Rank(r), Report(r, step)));
      EXPECT_FALSE(table.settled());
      EXPECT_TRUE(table.Take(Rank((r + 1) % 4), Report(r, step)));
    }
    EXPECT_TRUE(table.settled());
  }
  void MakeOne(uint64_t step) {
    table.Arm(Step(step), partners);
    TakeAll(step);
    ASSERT_FALSE(table.failure());
    table.Count();
  }

  ReplicaMap replicas;
  std::vector<SnapshotPartner> partners;
  SnapshotTable table;
};

TEST_F(Table, CountsWhatEveryCopyIsThereFor) {
  EXPECT_EQ(table.newest(), Step());
  EXPECT_FALSE(table.FindUsable(replicas).step);
  MakeOne(8);
  EXPECT_EQ(table.newest(), Step(8));
  EXPECT_EQ(table.FindUsable(replicas).step, Step(8));
  EXPECT_TRUE(table.PlanMoves(replicas, Step(8)).empty()) << "everybody has its own";
}

TEST_F(Table, TakesNothingTwiceNorOfAnotherStepNorFromAStranger) {
  table.Arm(Step(8), partners);
  EXPECT_TRUE(table.Take(Rank(0), Report(0, 8)));
  EXPECT_FALSE(table.Take(Rank(0), Report(0, 8)));
  EXPECT_FALSE(table.Take(Rank(1), Report(1, 7))) << "a mixed step";
  EXPECT_FALSE(table.Take(Rank(2), Report(0, 8))) << "not the partner";
  EXPECT_FALSE(table.Take(Rank(2), Report(-1, 8)));
  EXPECT_FALSE(table.Take(Rank(2), Report(4, 8)));
  EXPECT_TRUE(table.Awaits(Rank(1)));
  EXPECT_FALSE(table.Awaits(Rank(0)));
}

TEST_F(Table, OneThatCouldNotIsEnoughToFail) {
  table.Arm(Step(8), partners);
  for (int r : {0, 1, 3}) table.Take(Rank(r), Report(r, 8)), table.Take(Rank((r + 1) % 4), Report(r, 8));
  EXPECT_FALSE(table.settled());
  table.Take(Rank(2), Report(2, 8, StatusCode::kCancelled));
  EXPECT_TRUE(table.settled()) << "its partner has nothing to say";
  ASSERT_TRUE(table.failure());
  EXPECT_EQ(table.failure()->rank, Rank(2));
  EXPECT_EQ(table.failure()->code, StatusCode::kCancelled);
}

TEST_F(Table, ASecondCopyWithAnotherDigestFails) {
  table.Arm(Step(8), partners);
  for (int r = 0; r < 4; ++r) {
    table.Take(Rank((r + 1) % 4), Report(r, 8, StatusCode::kOk, r == 2 ? 99 : 0));
    table.Take(Rank(r), Report(r, 8));
  }
  ASSERT_TRUE(table.settled() && table.failure());
  EXPECT_EQ(table.failure()->code, StatusCode::kDataLoss);
  EXPECT_EQ(table.failure()->rank, Rank(3));
}

TEST_F(Table, AFailedAttemptLeavesTheOneBefore) {
  MakeOne(8);
  table.Arm(Step(12), partners);
  table.Take(Rank(2), Report(2, 12, StatusCode::kCancelled));
  table.Disarm();
  EXPECT_EQ(table.FindUsable(replicas).step, Step(8));
}

TEST_F(Table, AWholeGroupComesBackFromItsPartners) {
  MakeOne(8);
  table.Forget(Rank(0));
  table.Forget(Rank(2));
  ASSERT_EQ(table.FindUsable(replicas).step, Step(8));
  const auto moves = table.PlanMoves(replicas, Step(8));
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].destination, Rank(0));
  EXPECT_EQ(moves[0].sources, std::vector<Rank>{Rank(1)});
  EXPECT_EQ(moves[0].snapshot_of, Rank(0));
  EXPECT_EQ(moves[1].destination, Rank(2));
  EXPECT_EQ(moves[1].sources, std::vector<Rank>{Rank(3)});
}

TEST_F(Table, WithItsPartnerGoneAReplicasCopyServes) {
  MakeOne(8);
  table.Forget(Rank(0));
  table.Forget(Rank(1));  // kept the copy of rank 0
  ASSERT_EQ(table.FindUsable(replicas).step, Step(8));
  const auto moves = table.PlanMoves(replicas, Step(8));
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].snapshot_of, Rank(2)) << "the same shard";
  EXPECT_EQ(moves[0].sources, (std::vector<Rank>{Rank(2), Rank(3)}));
}

TEST_F(Table, ThePartnersAndTheGroupGoneIsTheEndOfIt) {
  MakeOne(8);
  for (int r : {0, 1, 2}) table.Forget(Rank(r));
  ASSERT_TRUE(table.FindUsable(replicas).step) << "rank 3 keeps the copy of rank 2";
  table.Forget(Rank(3));
  const auto usable = table.FindUsable(replicas);
  EXPECT_FALSE(usable.step);
  EXPECT_NE(usable.why.find("step 8"), std::string::npos) << usable.why;
  EXPECT_NE(usable.why.find("layout 0"), std::string::npos) << usable.why;
}

TEST_F(Table, WhatCannotBeReadIsLeftOutAndThenTheSnapshotIs) {
  MakeOne(8);
  table.Spoil(Rank(0));
  EXPECT_EQ(table.FindUsable(replicas).step, Step(8));
  EXPECT_EQ(table.PlanMoves(replicas, Step(8)).front().destination, Rank(0));
  table.Spoil(Rank(0));
  EXPECT_FALSE(table.FindUsable(replicas).step) << "what it received was no good either";
}

TEST_F(Table, LaterStepsAreDropped) {
  MakeOne(8);
  table.DropAfter(Step(8));
  EXPECT_EQ(table.newest(), Step(8));
  table.DropAfter(Step(7));
  EXPECT_EQ(table.newest(), Step());
}

}  // namespace
}  // namespace kintsugi::core
