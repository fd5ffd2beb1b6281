// Who writes or reads what several ranks hold: Megatron's rule to the letter, and the balanced policy against it.
#include "replica/plan/distribute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "replica/plan/assignment_cache.h"
#include "runtime/base/random.h"
#include "tests/unit/plan/worlds.h"

namespace kintsugi::plan {
namespace {

using layout::ErrorCode;

// The rule as section 6 of the reference says it: sort, then ask every rank for every shard.
std::vector<int32_t> Slow(const SharedShards& list, int32_t ranks) {
  const auto& shards = list.shards();
  std::vector<size_t> order(shards.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [&](size_t x, size_t y) {
    const SharedShard &a = shards[x], &b = shards[y];
    if (a.cross_group != b.cross_group) return b.cross_group;
    const size_t holders_a = list.HoldersOf(a).size(), holders_b = list.HoldersOf(b).size();
    if (holders_a != holders_b) return holders_a < holders_b;
    if (a.bytes != b.bytes) return a.bytes > b.bytes;
    if (a.key != b.key) return a.key < b.key;
    if (a.offset != b.offset) return a.offset < b.offset;
    if (a.flat.has_value() != b.flat.has_value()) return b.flat.has_value();
    if (!a.flat || *a.flat == *b.flat) return false;
    return a.flat->start != b.flat->start ? a.flat->start < b.flat->start : a.flat->stop < b.flat->stop;
  };
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  std::vector<int32_t> chosen(shards.size());
  for (size_t number : order) {
    int32_t best = -1;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const auto& holders = list.HoldersOf(shards[number]);
      if (std::find(holders.begin(), holders.end(), rank) == holders.end()) continue;
      if (best < 0 || load[static_cast<size_t>(rank)] < load[static_cast<size_t>(best)]) best = rank;
    }
    load[static_cast<size_t>(best)] += shards[number].bytes;
    chosen[number] = best;
  }
  return chosen;
}

SharedShards RandomShards(int32_t ranks, size_t count, bool is_skewed, Random& random) {
  SharedShards list;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> holders;
    if (random.Chance(0.2)) holders = {static_cast<int32_t>(random.Below(static_cast<uint64_t>(ranks)))};
    for (int32_t rank = 0; rank < ranks; ++rank)
      if (random.Chance(0.4)) holders.push_back(rank);
    if (holders.empty()) holders = {0};
    SharedShard shard{"k" + std::to_string(random.Below(4)), {static_cast<int64_t>(random.Below(3))}};
    if (random.Chance(0.3)) shard.flat = FlatRange{static_cast<int64_t>(random.Below(3)), 3};
    shard.bytes = static_cast<int64_t>(is_skewed ? uint64_t{1} << random.Below(12) : random.Below(5));
    if (is_skewed) shard.bytes += static_cast<int64_t>(random.Below(10));
    shard.holders = list.AddHolders(holders);
    shard.cross_group = random.Chance(0.2);
    list.Add(shard);
  }
  return list;
}

int64_t Largest(const Assignment& assignment) {
  return *std::max_element(assignment.load.begin(), assignment.load.end());
}

// The loads are those of the assignment, and everyone got what it holds.
void ExpectConsistent(const SharedShards& list, const Assignment& assignment) {
  std::vector<int64_t> load(assignment.load.size());
  for (size_t i = 0; i < list.shards().size(); ++i) {
    const auto& holders = list.HoldersOf(list.shards()[i]);
    ASSERT_TRUE(std::binary_search(holders.begin(), holders.end(), assignment.rank[i]));
    load[static_cast<size_t>(assignment.rank[i])] += list.shards()[i].bytes;
  }
  ASSERT_EQ(load, assignment.load);
}

// Eight ranks, TP 2 x DP 4, elements of 4 bytes.
TEST(Megatron, GivesTheAnswersOfTheWorkedExample) {
  SharedShards list;
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7}, even = {0, 2, 4, 6}, odd = {1, 3, 5, 7};
  const auto add = [&](const std::string& key, int64_t offset, int64_t elements, const std::vector<int32_t>& holders) {
    list.Add({key, {offset}, std::nullopt, elements * 4, list.AddHolders(holders)});
  };
  for (int32_t rank = 0; rank < 8; ++rank) add("keyB", rank * 20, 20, {{rank}});
  for (const char* key : {"key_TP_repl1", "key_TP_repl2"}) add(key, 0, 10, even), add(key, 10, 10, odd);
  add("keyE", 0, 100, all);
  add("keyD", 0, 1000, all);
  add("keyC", 0, 100, all);
  const auto assignment = Distribute(list, 8, DistributionPolicy::kMegatron);
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->rank, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 6, 4, 5}));
  EXPECT_EQ(assignment->load, (std::vector<int64_t>{120, 120, 120, 120, 4080, 480, 480, 80}));
}

TEST(Megatron, IsTheSlowTranscription) {
  Random random(11);
  for (int i = 0; i < 3000; ++i) {
    const auto ranks = static_cast<int32_t>(1 + random.Below(9));
    const SharedShards list = RandomShards(ranks, random.Below(40), random.Chance(0.5), random);
    const auto assignment = Distribute(list, ranks, DistributionPolicy::kMegatron);
    ASSERT_TRUE(assignment.ok());
    ASSERT_EQ(assignment->rank, Slow(list, ranks)) << i;
    ExpectConsistent(list, *assignment);
  }
}

TEST(Balanced, IsNeverWorseThanMegatronAndBetterOnSkewedSizes) {
  Random random(12);
  int better = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto ranks = static_cast<int32_t>(2 + random.Below(8));
    const SharedShards list = RandomShards(ranks, 1 + random.Below(40), true, random);
    const auto megatron = Distribute(list, ranks, DistributionPolicy::kMegatron);
    const auto balanced = Distribute(list, ranks, DistributionPolicy::kBalanced);
    ASSERT_TRUE(megatron.ok() && balanced.ok());
    ExpectConsistent(list, *balanced);
    ASSERT_LE(Largest(*balanced), Largest(*megatron));
    better += Largest(*balanced) < Largest(*megatron);
  }
  EXPECT_GT(better, 600);
}

// The best there is, by trying everything.
int64_t Optimum(const SharedShards& list, size_t number, std::vector<int64_t>* load) {
  if (number == list.shards().size()) return *std::max_element(load->begin(), load->end());
  int64_t best = INT64_MAX;
  for (int32_t rank : list.HoldersOf(list.shards()[number])) {
    (*load)[static_cast<size_t>(rank)] += list.shards()[number].bytes;
    best = std::min(best, Optimum(list, number + 1, load));
    (*load)[static_cast<size_t>(rank)] -= list.shards()[number].bytes;
  }
  return best;
}

TEST(Balanced, IsMostlyTheOptimumOfSmallLists) {
  Random random(13);
  int optimal_balanced = 0, optimal_megatron = 0;
  for (int i = 0; i < 500; ++i) {
    const SharedShards list = RandomShards(3, 9, true, random);
    std::vector<int64_t> load(3);
    const int64_t optimum = Optimum(list, 0, &load);
    const int64_t balanced = Largest(*Distribute(list, 3, DistributionPolicy::kBalanced));
    ASSERT_GE(balanced, optimum);
    optimal_balanced += balanced == optimum;
    optimal_megatron += Largest(*Distribute(list, 3, DistributionPolicy::kMegatron)) == optimum;
  }
  EXPECT_GT(optimal_balanced, 400);
  EXPECT_LT(optimal_megatron, optimal_balanced);
}

// Sizes 3, 3, 2, 2, 2 on two ranks: largest first ends at 7, an exchange reaches 6.
TEST(Balanced, ExchangesWhereMovesDoNotHelp) {
  SharedShards list;
  const std::vector<int32_t> both = {0, 1};
  for (int64_t i = 0; const int64_t bytes : {3, 3, 2, 2, 2}) list.Add({"w", {i++}, {}, bytes, list.AddHolders(both)});
  EXPECT_EQ(Largest(*Distribute(list, 2, DistributionPolicy::kMegatron)), 7);
  EXPECT_EQ(Largest(*Distribute(list, 2, DistributionPolicy::kBalanced)), 6);
}

TEST(Distribute, RefusesWhatNobodyCanTake) {
  SharedShards none, far, negative, large;
  none.Add({"w", {0}, {}, 1, none.AddHolders({})});
  far.Add({"w", {0}, {}, 1, far.AddHolders(std::vector<int32_t>{0, 4})});
  negative.Add({"w", {0}, {}, -1, negative.AddHolders(std::vector<int32_t>{0})});
  for (int i = 0; i < 2; ++i) large.Add({"w", {0}, {}, INT64_MAX, large.AddHolders(std::vector<int32_t>{0})});
  EXPECT_EQ(Distribute(none, 4, DistributionPolicy::kMegatron).error().code, ErrorCode::kRankUnknown);
  EXPECT_EQ(Distribute(far, 4, DistributionPolicy::kMegatron).error().ranks, (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(Distribute(negative, 4, DistributionPolicy::kMegatron).error().code, ErrorCode::kNegative);
  EXPECT_EQ(Distribute(large, 4, DistributionPolicy::kBalanced).error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(Distribute(SharedShards(), 0, DistributionPolicy::kBalanced).ok());
}

TEST(ShardsOf, KnowsWhichHaveTheirMainReplicaInTheGroup) {
  const layout::Metadata metadata = Grid("w", {8, 2}, {2, 1}, 2);  // mains on 0 and 1, copies on 2 and 3
  const std::vector<int32_t> group = {1, 2, 3};
  const SharedShards save = ShardsOf(metadata, group, false), load = ShardsOf(metadata, group, true);
  ASSERT_EQ(save.shards().size(), 1u);
  EXPECT_EQ(save.shards()[0].offset, (Shape{4, 0}));
  EXPECT_EQ(save.shards()[0].bytes, 4 * 2 * 4);
  EXPECT_EQ(save.HoldersOf(save.shards()[0]), (std::vector<int32_t>{1, 3}));
  ASSERT_EQ(load.shards().size(), 2u);
  EXPECT_TRUE(load.shards()[0].cross_group);
  EXPECT_EQ(load.HoldersOf(load.shards()[0]), (std::vector<int32_t>{2}));
  EXPECT_FALSE(load.shards()[1].cross_group);
  EXPECT_EQ(ShardsOf(metadata, {}, false).shards().size(), 2u);
}

TEST(AssignmentCache, GivesBackWhatWasKeptAndRefusesWhatIsStaleOrDamaged) {
  Random random(14);
  const SharedShards list = RandomShards(5, 30, true, random), other = RandomShards(5, 30, true, random);
  const auto policy = DistributionPolicy::kBalanced;
  const Assignment assignment = *Distribute(list, 5, policy);
  const uint64_t digest = DigestOf(list, 5, policy);
  const std::string bytes = EncodeAssignment(assignment, digest);
  ASSERT_TRUE(DecodeAssignment(bytes, digest).ok());
  EXPECT_EQ(*DecodeAssignment(bytes, digest), assignment);
  for (uint64_t now :
       {DigestOf(other, 5, policy), DigestOf(list, 6, policy), DigestOf(list, 5, DistributionPolicy::kMegatron)})
    EXPECT_EQ(DecodeAssignment(bytes, now).error().code, ErrorCode::kDigest);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_FALSE(DecodeAssignment(damaged, digest).ok()) << i;
    EXPECT_FALSE(DecodeAssignment(bytes.substr(0, i), digest).ok()) << i;
  }
}

}  // namespace
}  // namespace kintsugi::plan
