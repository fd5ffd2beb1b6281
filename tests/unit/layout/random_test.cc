// Validate against the oracle, on random layouts: 0 to 6 axes, flattened or not, uneven, with copies and zero sizes.
#include <gtest/gtest.h>

#include <map>

#include "replica/layout/codec.h"
#include "replica/layout/merge.h"
#include "replica/layout/validate.h"
#include "tests/unit/layout/oracle.h"

namespace kintsugi::layout {
namespace {

constexpr int kLayouts = 100'000;

std::string Text(const std::vector<RankShard>& shards) {
  std::string text;
  for (const RankShard& shard : shards)
    text += "rank " + std::to_string(shard.rank) + ": " + kintsugi::Describe(shard.tensor) + " replica " +
            DescribeShape(shard.tensor.replica_id) + "\n";
  return text;
}

bool IsAgreement(ErrorCode code) { return code >= ErrorCode::kKind && code <= ErrorCode::kFlags; }
bool IsAboutOneShard(ErrorCode code) {
  return code == ErrorCode::kOutOfBounds || code == ErrorCode::kFlatRange || code == ErrorCode::kMisaligned;
}

// The region of a hole begins at the first wrong element and is uncovered all over; that of an overlap contains it and
// is covered twice all over. The ranks of an overlap are those that hold the element.
void CheckRegion(const Box& whole, const LayoutError& error, const Expected& expected) {
  ASSERT_TRUE(error.region);
  const Box& region = *error.region;
  ASSERT_FALSE(IsEmpty(region));
  ASSERT_TRUE(Contains(whole, region));
  const Point first = Unravel(whole, expected.first_wrong);
  const bool is_hole = expected.code == ErrorCode::kHole;
  if (is_hole)
    ASSERT_EQ(region.lo, first);
  else
    ASSERT_TRUE(Contains(region, first));
  for (int64_t number = 0; number < *Volume(region); ++number) {
    const int times = expected.times[static_cast<size_t>(Ravel(whole, Unravel(region, number)))];
    ASSERT_TRUE(is_hole ? times == 0 : times >= 2) << Describe(region) << " element " << number << " times " << times;
  }
  if (is_hole) return;
  ASSERT_EQ(error.ranks, expected.ranks);
}

TEST(Validate, SaysWhatElementByElementSays) {
  Random random(20261121);
  std::map<std::string, int> seen;
  for (int round = 0; round < kLayouts; ++round) {
    const auto shards = RandomLayout("w", {}, random);
    const Metadata metadata = round % 16 == 0 ? MergeAll(BuildPerRank(shards, 6)) : BuildAll(shards);
    const auto errors = Validate(metadata);
    const Expected expected = Judge(shards);
    ASSERT_LE(errors.size(), 1u);
    ASSERT_EQ(errors.empty(), !expected.code) << ToStatus(errors).ToString() << "\n" << Text(shards);
    ++seen[errors.empty() ? "right" : std::string(ErrorCodeName(errors[0].code))];
    if (errors.empty()) continue;
    const LayoutError& error = errors[0];
    ASSERT_EQ(error.key, "w");
    if (IsAgreement(*expected.code)) {
      ASSERT_TRUE(IsAgreement(error.code)) << error.message << "\n" << Text(shards);
    } else if (IsAboutOneShard(*expected.code)) {
      ASSERT_TRUE(IsAboutOneShard(error.code)) << error.message << "\n" << Text(shards);
    } else {
      ASSERT_EQ(error.code, *expected.code) << error.message << "\n" << Text(shards);
    }
    if (expected.first_wrong >= 0) {
      const Box whole = WholeBox(shards[0].tensor.global_shape);
      ASSERT_NO_FATAL_FAILURE(CheckRegion(whole, error, expected)) << error.message << "\n" << Text(shards);
    }
  }
  // Every verdict was met often enough for the comparison to mean something.
  for (const char* verdict : {"right", "hole", "overlap", "double_main", "stray_copy", "out_of_bounds", "flat_range",
                              "misaligned", "dtype_differs", "global_shape"})
    EXPECT_GT(seen[verdict], 200) << verdict;
  EXPECT_GT(seen["right"], kLayouts / 3);
}

TEST(Metadata, IsTheSameAlongEveryTreeAndOrderOfMerging) {
  Random random(7);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<RankShard> shards;
    for (const char* key : {"a", "b", "c"}) {
      const auto more = RandomLayout(key, {.ranks = 7}, random);
      shards.insert(shards.end(), more.begin(), more.end());
    }
    std::vector<Metadata> lists = BuildPerRank(shards, 7);
    const Metadata folded = MergeAll(lists);
    const std::string bytes = Encode(folded);
    const auto verdict = Validate(folded, {.world_size = 7});
    // Any two of what is left, in any order, until one is left.
    while (lists.size() > 1) {
      const size_t a = random.Below(lists.size());
      std::swap(lists[a], lists.back());
      const Metadata taken = std::move(lists.back());
      lists.pop_back();
      Metadata& other = lists[random.Below(lists.size())];
      other = random.Chance(0.5) ? Merge(taken, other) : Merge(other, taken);
    }
    ASSERT_EQ(Encode(lists[0]), bytes);
    ASSERT_EQ(DigestOf(lists[0]), DigestOf(folded));
    ASSERT_EQ(Validate(lists[0], {.world_size = 7}), verdict);
    // And of one builder, in a random order of shards.
    for (size_t i = shards.size(); i > 1; --i) std::swap(shards[i - 1], shards[random.Below(i)]);
    MetadataBuilder builder;
    for (int32_t rank = 6; rank >= 0; --rank) builder.AddRank(rank);
    for (const RankShard& shard : shards) builder.AddTensor(shard.rank, shard.tensor);
    ASSERT_EQ(Encode(builder.Build()), bytes);
  }
}

}  // namespace
}  // namespace kintsugi::layout
