#include "runtime/core/save_balance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/random.h"

namespace kintsugi::core {
namespace {

IncidentFacts World(int ranks) {
  IncidentFacts incident;
  for (int r = 0; r < ranks; ++r) incident.ranks.push_back({.rank = Rank(r)});
  return incident;
}

std::vector<Rank> Ranks(int from, int to, int stride = 1) {
  std::vector<Rank> ranks;
  for (int r = from; r < to; r += stride) ranks.push_back(Rank(r));
  return ranks;
}

std::vector<uint64_t> BytesPerRank(const std::vector<SaveAssignment>& plan, int ranks, const ShardBytes& bytes_of) {
  std::vector<uint64_t> bytes(static_cast<size_t>(ranks));
  for (const SaveAssignment& one : plan)
    bytes[static_cast<size_t>(one.writer.value())] += bytes_of(one.writer, one.entry.layout);
  return bytes;
}

// A dense layout of two tensor shards, two copies each, and three whole ones that all ranks hold: PlanSave alone gives
// everything but one shard to rank 0.
TEST(BalanceSave, SharesBytesOverTheLiveReplicas) {
  const IncidentFacts incident = World(4);
  std::vector<SaveAssignment> plan = {{Rank(0), {0, Ranks(0, 4, 2), {Rank(0), Rank(2)}}},
                                      {Rank(1), {0, Ranks(1, 4, 2), {Rank(1), Rank(3)}}},
                                      {Rank(0), {1, Ranks(0, 4), {}}},
                                      {Rank(0), {2, Ranks(0, 4), {}}},
                                      {Rank(0), {3, Ranks(0, 4), {}}}};
  const ShardBytes bytes_of = [](Rank, int layout) {
    return std::vector<uint64_t>{100, 60, 90, 30}[static_cast<size_t>(layout)];
  };
  EXPECT_EQ(BytesPerRank(plan, 4, bytes_of), (std::vector<uint64_t>{280, 100, 0, 0}));
  const auto balanced = BalanceSave(plan, incident, bytes_of);
  EXPECT_EQ(BytesPerRank(balanced, 4, bytes_of), (std::vector<uint64_t>{100, 100, 90, 90}));
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(balanced[i].entry.layout, plan[i].entry.layout);
    EXPECT_EQ(balanced[i].entry.holders, plan[i].entry.holders);
    EXPECT_EQ(balanced[i].entry.objects_of, plan[i].entry.objects_of);
  }
}

TEST(StoreOwnObjects, RanksThatAreAheadOfTheirPartnersWriteTheirOwn) {
  IncidentFacts incident = World(4);
  incident.ranks[0].objects_ahead = incident.ranks[2].objects_ahead = incident.ranks[3].objects_ahead = true;
  incident.ranks[3].condition = Condition::kTorn;  // what it has of the step is nothing
  const auto stored = StoreOwnObjects(
      {{Rank(0), {0, Ranks(0, 4, 2), {Rank(0), Rank(2)}}}, {Rank(1), {0, Ranks(1, 4, 2), {Rank(1), Rank(3)}}}}, incident);
  ASSERT_EQ(stored.size(), 3u);
  EXPECT_EQ(stored[0].entry.objects_of, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(stored[1].entry.objects_of, (std::vector<Rank>{Rank(1), Rank(3)}));
  EXPECT_EQ(stored[2].writer, Rank(2));
  EXPECT_EQ(stored[2].entry.layout, kObjectsAlone);
  EXPECT_EQ(stored[2].entry.objects_of, std::vector<Rank>{Rank(2)});
}

TEST(BalanceSave, AsksOnlyHoldersThatAreAsFitAsTheFirst) {
  IncidentFacts incident = World(4);
  incident.ranks[2].condition = Condition::kTorn;
  incident.ranks[3].can_write = false;
  const std::vector<SaveAssignment> plan = {{Rank(0), {0, Ranks(0, 4), {}}},
                                            {Rank(0), {1, Ranks(0, 4), {}}},
                                            {Rank(0), {2, Ranks(0, 4), {}}},
                                            {Rank(3), {3, {Rank(2), Rank(3)}, {}}}};
  const ShardBytes bytes_of = [](Rank, int) { return uint64_t{10}; };
  EXPECT_EQ(BytesPerRank(BalanceSave(plan, incident, bytes_of), 4, bytes_of), (std::vector<uint64_t>{20, 10, 0, 10}));
}

// Whatever the shards, each has one writer who holds it, and the largest load is within the largest shard of the least
// that holders of everything could have.
TEST(BalanceSave, IsNeverFarFromEvenWhereAllHoldEverything) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + static_cast<int>(random.Below(8)), shards = 1 + static_cast<int>(random.Below(20));
    std::vector<uint64_t> sizes;
    std::vector<SaveAssignment> plan;
    uint64_t total = 0, largest = 0;
    for (int layout = 0; layout < shards; ++layout) {
      sizes.push_back(random.Below(1000));
      total += sizes.back();
      largest = std::max(largest, sizes.back());
      plan.push_back({Rank(0), {layout, Ranks(0, ranks), {}}});
    }
    const ShardBytes bytes_of = [&](Rank, int layout) { return sizes[static_cast<size_t>(layout)]; };
    const auto bytes = BytesPerRank(BalanceSave(plan, World(ranks), bytes_of), ranks, bytes_of);
    EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()), total / static_cast<uint64_t>(ranks) + largest);
    uint64_t sum = 0;
    for (const uint64_t one : bytes) sum += one;
    EXPECT_EQ(sum, total);
  }
}

}  // namespace
}  // namespace kintsugi::core
