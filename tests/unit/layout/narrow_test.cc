#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "replica/layout/shard.h"
#include "runtime/base/random.h"

namespace kintsugi::layout {
namespace {

ShardedTensor Example() {
  const RankOffset offsets[] = {{0, 0, 10}, {2, 3, 6}};
  return *FromRankOffsets("w", {DType::kFloat32, {1, 3, 7, 9}, {}}, offsets);
}

void Expect(const Result<ShardedTensor, LayoutError>& outcome, ErrorCode code, const std::vector<std::string>& named) {
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, code) << outcome.error().message;
  EXPECT_THAT(outcome.error().message, testing::HasSubstr("'w'"));
  for (const std::string& text : named) EXPECT_THAT(outcome.error().message, testing::HasSubstr(text));
}

TEST(Narrow, IsTheReferencesExamples) {
  const auto a = Narrow(Example(), 1, 1, 2);
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->local_shape, (Shape{1, 2, 7, 9}));
  EXPECT_EQ(a->global_shape, (Shape{10, 2, 42, 9}));
  EXPECT_EQ(a->global_offset, (Shape{0, 0, 21, 0}));
  const auto b = Narrow(Example(), 2, 3, 2);
  ASSERT_TRUE(b.ok()) << b.error().message;
  EXPECT_EQ(b->local_shape, (Shape{1, 3, 2, 9}));
  EXPECT_EQ(b->global_shape, (Shape{10, 3, 12, 9}));
  EXPECT_EQ(b->global_offset, (Shape{0, 0, 6, 0}));
  EXPECT_EQ(b->axis_fragmentations, (Shape{10, 1, 6, 1}));
}

TEST(Narrow, DoesNotCountPrependedAxes) {
  const RankOffset offsets[] = {{0, 2, 4}, {1, 1, 2}};
  const auto shard = FromRankOffsets("w", {DType::kFloat32, {6, 5}, {}}, offsets, {.prepend_axis_num = 1});
  const auto cut = Narrow(*shard, 0, 3, 3);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->global_shape, (Shape{4, 6, 5}));
  EXPECT_EQ(cut->global_offset, (Shape{2, 3, 0}));
  EXPECT_EQ(cut->prepend_axis_num, 1);
  Expect(Narrow(*shard, 2, 0, 1), ErrorCode::kAxis, {"axis 2", "2"});
  Expect(Narrow(*shard, -1, 0, 1), ErrorCode::kAxis, {"axis -1"});
}

TEST(Narrow, RefusesWhatIsNotWithinOrNotExact) {
  Expect(Narrow(Example(), 2, 3, 5), ErrorCode::kNarrow, {"5 elements from 3", "7"});
  Expect(Narrow(Example(), 2, -1, 5), ErrorCode::kNarrow, {"from -1"});
  Expect(Narrow(Example(), 2, INT64_MAX, 5), ErrorCode::kNarrow, {std::to_string(INT64_MAX)});
  // An irregular shard whose global length does not shrink to a whole number.
  const auto irregular = MakeShard({.key = "w", .local_shape = {4}, .global_shape = {10}, .global_offset = {6}});
  Expect(Narrow(*irregular, 0, 0, 1), ErrorCode::kNarrow, {"10", "6", "1/4"});
  Expect(Narrow(*Flatten(Example(), {0, 5}), 1, 0, 1), ErrorCode::kNarrow, {"flattened"});
}

TEST(Narrow, KeepsMemoryWhereItIsOnePiece) {
  std::vector<float> memory(12);
  const TensorData data{DType::kFloat32, {4, 3}, {.data = memory.data(), .size_bytes = 48}};
  const auto shard = FromShardWeight("w", data, 0, 1, 2);
  const auto rows = Narrow(*shard, 0, 1, 2);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->memory.data, memory.data() + 3);
  EXPECT_EQ(rows->memory.size_bytes, 24u);
  EXPECT_TRUE(Validate(*rows).ok());
  ShardedTensor shared = *shard;
  shared.memory.kind = MemoryKind::kShared;
  shared.memory.shared_fd = 3;
  shared.memory.shared_offset = 64;
  EXPECT_EQ(Narrow(shared, 0, 1, 2)->memory.shared_offset, 76u);
  Expect(Narrow(*shard, 1, 0, 1), ErrorCode::kNarrow, {"axis 1", "one piece", "axis 0 has length 4"});
  EXPECT_TRUE(Narrow(*shard, 1, 0, 3).ok()) << "all of the axis";
}

TEST(Narrow, OfAnEmptyAxisIsItself) {
  const auto empty = MakeShard({.key = "w", .local_shape = {0, 2}, .global_shape = {0, 2}, .global_offset = {0, 0}});
  const auto same = Narrow(*empty, 0, 0, 0);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->global_shape, (Shape{0, 2}));
}

// Against one element after the other: which of the range are kept, where in the narrowed box, and where in memory.
TEST(NarrowFlat, KeepsTheElementsOfItsRange) {
  Random random(11);
  size_t several = 0, none = 0;
  for (int round = 0; round < 3000; ++round) {
    Shape box;
    for (uint64_t axes = 1 + random.Below(3); axes > 0; --axes)
      box.push_back(static_cast<int64_t>(1 + random.Below(5)));
    const int axis = static_cast<int>(random.Below(box.size()));
    const int64_t local = box[static_cast<size_t>(axis)], start = static_cast<int64_t>(random.Below(local)),
                  length = static_cast<int64_t>(random.Below(static_cast<uint64_t>(local - start) + 1));
    int64_t elements = 1, inner = 1;
    for (const int64_t one : box) elements *= one;
    for (size_t behind = static_cast<size_t>(axis) + 1; behind < box.size(); ++behind) inner *= box[behind];
    const auto first = static_cast<int64_t>(random.Below(elements)),
               stop = first + static_cast<int64_t>(random.Below(static_cast<uint64_t>(elements - first) + 1));
    std::vector<float> memory(static_cast<size_t>(stop - first));
    for (size_t e = 0; e < memory.size(); ++e) memory[e] = static_cast<float>(first + static_cast<int64_t>(e));
    std::map<int64_t, float> expected;  // by element of the narrowed box
    for (int64_t e = first; e < stop; ++e) {
      const int64_t outer = e / (local * inner), at = e / inner % local;
      if (at >= start && at < start + length)
        expected[(outer * length + at - start) * inner + e % inner] = static_cast<float>(e);
    }
    const auto whole =
        MakeShard({.key = "w", .local_shape = box, .global_shape = box, .global_offset = Shape(box.size())});
    ASSERT_TRUE(whole.ok());
    const bool has_memory = round % 3 != 0 && !memory.empty();
    const Memory bound = has_memory ? Memory{.data = memory.data(), .size_bytes = memory.size() * 4} : Memory{};
    const auto flat = Flatten(*whole, {first, stop}, bound);
    ASSERT_TRUE(flat.ok()) << flat.error().message;
    const auto pieces = NarrowFlat(*flat, axis, start, length);
    ASSERT_TRUE(pieces.ok()) << pieces.error().message;
    std::map<int64_t, float> found;
    for (const ShardedTensor& piece : *pieces) {
      EXPECT_EQ(piece.local_shape[static_cast<size_t>(axis)], length);
      const FlatRange range = *piece.flattened_range;
      for (int64_t e = range.start; e < range.stop; ++e) {
        const float value = has_memory ? static_cast<const float*>(piece.memory.data)[e - range.start] : expected[e];
        EXPECT_TRUE(found.emplace(e, value).second) << "twice";
      }
      if (has_memory) {
        EXPECT_TRUE(Validate(piece).ok());
      }
    }
    EXPECT_EQ(found, expected) << "round " << round;
    if (!has_memory) {
      EXPECT_LE(pieces->size(), 1u);
    }
    several += pieces->size() > 1;
    none += pieces->empty();
  }
  EXPECT_GT(several, 20u);
  EXPECT_GT(none, 20u);
}

TEST(NarrowFlat, RefusesWhatNarrowRefusesAndWhatIsNotFlat) {
  const auto flat = Flatten(Example(), {5, 60});
  EXPECT_EQ(NarrowFlat(*flat, 2, 3, 5).error().code, ErrorCode::kNarrow);
  EXPECT_EQ(NarrowFlat(*flat, 4, 0, 1).error().code, ErrorCode::kAxis);
  EXPECT_EQ(NarrowFlat(Example(), 1, 0, 1).error().code, ErrorCode::kNarrow);
}

}  // namespace
}  // namespace kintsugi::layout
