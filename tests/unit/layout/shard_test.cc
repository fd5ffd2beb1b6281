#include "replica/layout/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kintsugi::layout {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An error of this code whose message names all of these.
void Expect(const Result<ShardedTensor, LayoutError>& outcome, ErrorCode code, const std::vector<std::string>& named) {
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, code) << outcome.error().message;
  for (const std::string& text : named) EXPECT_THAT(outcome.error().message, HasSubstr(text));
}

TensorData Data(Shape shape, DType dtype = DType::kFloat32) { return {dtype, std::move(shape), {}}; }

TEST(FromRankOffsets, IsTheReferencesExample) {
  const RankOffset offsets[] = {{0, 0, 10}, {2, 3, 6}};
  const auto shard = FromRankOffsets("w", Data({1, 3, 7, 9}), offsets);
  ASSERT_TRUE(shard.ok()) << shard.error().message;
  EXPECT_EQ(shard->global_shape, (Shape{10, 3, 42, 9}));
  EXPECT_EQ(shard->global_offset, (Shape{0, 0, 21, 0}));
  EXPECT_EQ(shard->axis_fragmentations, (Shape{10, 1, 6, 1}));
  EXPECT_EQ(shard->local_shape, (Shape{1, 3, 7, 9}));
  EXPECT_EQ(GridCoordinates(*shard), (Shape{0, 0, 3, 0}));
}

TEST(FromRankOffsets, CountsPrependedAxesFirst) {
  const RankOffset offsets[] = {{0, 2, 24}, {1, 1, 4}};
  const auto shard = FromRankOffsets("layers.w", Data({6, 5}), offsets, {.replica_id = {0, 1}, .prepend_axis_num = 1});
  ASSERT_TRUE(shard.ok()) << shard.error().message;
  EXPECT_EQ(shard->global_shape, (Shape{24, 24, 5}));
  EXPECT_EQ(shard->global_offset, (Shape{2, 6, 0}));
  EXPECT_EQ(shard->local_shape, (Shape{1, 6, 5}));
  EXPECT_EQ(OwnShape(*shard), (Shape{6, 5}));
  EXPECT_EQ(GridCoordinates(*shard), (Shape{2, 1, 0}));
  EXPECT_EQ(shard->replica_id, (std::vector<int64_t>{0, 1}));
}

TEST(FromRankOffsets, TakesScalarsZeroLengthsAndEightAxes) {
  EXPECT_TRUE(FromRankOffsets("scalar", Data({}), {}).ok());
  const RankOffset third{0, 2, 3};
  const auto empty = FromRankOffsets("empty", Data({0, 4}), {&third, 1});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(GridCoordinates(*empty), (Shape{0, 0})) << "an empty axis is no division by zero";
  EXPECT_TRUE(FromRankOffsets("eight", Data(Shape(8, 2)), {}).ok());
  Expect(FromRankOffsets("nine", Data(Shape(9, 2)), {}), ErrorCode::kDimensions, {"'nine'", "9 axes", "8"});
  Expect(FromRankOffsets("nine", Data(Shape(8, 2)), {}, {.prepend_axis_num = 1}), ErrorCode::kDimensions,
         {"9 axes", "8"});
  Expect(FromRankOffsets("minus", Data({2}), {}, {.prepend_axis_num = -1}), ErrorCode::kDimensions, {"-1"});
}

TEST(FromRankOffsets, RefusesWrongTriples) {
  const auto with = [](RankOffset offset) { return FromRankOffsets("w", Data({4}), {&offset, 1}); };
  Expect(with({0, -1, 2}), ErrorCode::kRankOffset, {"'w'", "(0, -1, 2)"});
  Expect(with({0, 2, 2}), ErrorCode::kRankOffset, {"(0, 2, 2)"});
  Expect(with({0, 0, 0}), ErrorCode::kRankOffset, {"(0, 0, 0)"});
  Expect(with({-1, 0, 1}), ErrorCode::kAxis, {"(-1, 0, 1)"});
  Expect(with({1, 0, 1}), ErrorCode::kAxis, {"(1, 0, 1)", "there are 1"});
  Expect(with({0, 1, INT64_MAX}), ErrorCode::kTooLarge, {"63 bits"});
}

// Defect 14: an axis named twice keeps the last triple.
TEST(FromRankOffsets, RefusesAnAxisThatIsNamedTwice) {
  const RankOffset offsets[] = {{0, 1, 2}, {0, 0, 4}};
  Expect(FromRankOffsets("w", Data({4}), offsets), ErrorCode::kAxisTwice,
         {"'w'", "(0, 0, 4)", "axis 0", "4 elements in, 2"});
}

ShardSpec Spec() {
  return {.key = "w",
          .dtype = DType::kBFloat16,
          .local_shape = {2, 4},
          .global_shape = {6, 4},
          .global_offset = {2, 0},
          .axis_fragmentations = {3, 1}};
}

TEST(MakeShard, TakesWhatIsRight) {
  ASSERT_TRUE(MakeShard(Spec()).ok());
  std::vector<uint16_t> bytes(8);
  const TensorData data{DType::kBFloat16, {2, 4}, {.data = bytes.data(), .size_bytes = 16}};
  const auto shard = MakeShard(Spec(), &data);
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->memory.data, bytes.data());
  EXPECT_TRUE(Validate(*shard).ok());
  ShardSpec irregular = Spec();
  irregular.axis_fragmentations.clear();
  irregular.global_offset = {3, 0};
  EXPECT_TRUE(MakeShard(irregular).ok()) << "an irregular shard sits anywhere";
}

TEST(MakeShard, ChecksInTheOrderOfTheReference) {
  ShardSpec spec = Spec();
  std::vector<uint16_t> bytes(8);
  // Everything is wrong; mended one by one, the next rule speaks.
  spec.key = "a\nb";
  spec.global_offset = {3};
  spec.prepend_axis_num = 1;
  TensorData data{DType::kFloat32, {4, 2}, {.data = bytes.data(), .size_bytes = 12}};
  Expect(MakeShard(spec, &data), ErrorCode::kKey, {});
  spec.key = "w";
  Expect(MakeShard(spec, &data), ErrorCode::kDType, {"'w'", "float32", "bfloat16"});
  data.dtype = DType::kBFloat16;
  Expect(MakeShard(spec, &data), ErrorCode::kLocalShape, {"[4, 2]", "[2, 4]"});
  data.shape = {2, 4};
  Expect(MakeShard(spec, &data), ErrorCode::kLocalShape, {"12 bytes", "[2, 4]"});
  data.memory.size_bytes = 16;
  Expect(MakeShard(spec, &data), ErrorCode::kDimensions, {"[3]", "[6, 4]"});
  spec.global_offset = {3, 0};
  Expect(MakeShard(spec, &data), ErrorCode::kDimensions, {"1 prepended", "[2, 4]", "[6, 4]"});
  spec.prepend_axis_num = 0;
  Expect(MakeShard(spec, &data), ErrorCode::kMisaligned, {"axis 0", "3", "2"});
  spec.global_offset = {2, 0};
  EXPECT_TRUE(MakeShard(spec, &data).ok());
}

TEST(MakeShard, RefusesWhatUpstreamLetsPass) {
  ShardSpec spec = Spec();
  spec.axis_fragmentations = {2, 1};
  Expect(MakeShard(spec), ErrorCode::kMisaligned, {"2 fragments", "length 2", "6"});
  spec.axis_fragmentations = {3};
  Expect(MakeShard(spec), ErrorCode::kDimensions, {"[3]", "[6, 4]"});
  // A prepended axis off its grid: its pieces have length 1.
  ShardSpec stacked{.key = "w",
                    .local_shape = {4},
                    .global_shape = {6, 4},
                    .global_offset = {1, 0},
                    .axis_fragmentations = {3, 1},
                    .prepend_axis_num = 1};
  Expect(MakeShard(stacked), ErrorCode::kMisaligned, {"axis 0", "3 fragments", "length 1", "6"});
  // Defect 13: no check of offset + local <= global.
  ShardSpec outside{.key = "w", .local_shape = {4}, .global_shape = {6}, .global_offset = {3}};
  Expect(MakeShard(outside), ErrorCode::kOutOfBounds, {"axis 0", "offset 3", "length 4", "6"});
  outside.global_offset = {INT64_MAX};
  Expect(MakeShard(outside), ErrorCode::kOutOfBounds, {std::to_string(INT64_MAX)});
  outside.global_offset = {-1};
  Expect(MakeShard(outside), ErrorCode::kNegative, {"axis 0", "-1"});
  ShardSpec large{.key = "w", .local_shape = {1, 1}, .global_shape = {INT64_MAX, 4}, .global_offset = {0, 0}};
  Expect(MakeShard(large), ErrorCode::kTooLarge, {"63 bits", "float32"});
  large.dtype = static_cast<DType>(200);
  Expect(MakeShard(large), ErrorCode::kDType, {"200"});
}

TEST(MakeShard, KnowsEveryDType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                            DType::kFloat8E5M2, DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8,
                            DType::kUInt8, DType::kBool, DType::kComplex64, DType::kComplex128}) {
    std::vector<uint8_t> bytes(3 * DTypeSize(dtype));
    const TensorData data{dtype, {3}, {.data = bytes.data(), .size_bytes = bytes.size()}};
    const auto shard = FromRankOffsets("w", data, {});
    ASSERT_TRUE(shard.ok()) << shard.error().message;
    EXPECT_EQ(shard->ByteCount(), bytes.size());
  }
}

TEST(FromShardWeight, CutsOneAxisOverTheGroup) {
  const auto shard = FromShardWeight("w", Data({4, 3}), 1, 2, 4);
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->global_shape, (Shape{4, 12}));
  EXPECT_EQ(shard->global_offset, (Shape{0, 6}));
  const auto whole = FromShardWeight("bias", Data({4}), std::nullopt, 2, 4, {.replica_id = {2}});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->global_shape, whole->local_shape);
  EXPECT_EQ(whole->replica_id, (std::vector<int64_t>{2}));
  Expect(FromShardWeight("w", Data({4, 3}), 2, 0, 4), ErrorCode::kAxis, {"axis 2", "[4, 3]", "0 to 1"});
  Expect(FromShardWeight("w", Data({4, 3}), -1, 0, 4), ErrorCode::kAxis, {"axis -1"});
  Expect(FromShardWeight("w", Data({4, 3}), 0, 4, 4), ErrorCode::kRankOffset, {"(0, 4, 4)"});
}

// Defect 9: shard_weight assigns into a tuple. Here shapes are made once, and the input stays as it was.
TEST(FromShardWeight, LeavesItsInputAlone) {
  const TensorData data = Data({4, 3});
  ASSERT_TRUE(FromShardWeight("w", data, 0, 1, 2).ok());
  EXPECT_EQ(data.shape, (Shape{4, 3}));
}

TEST(Flatten, TakesARangeOfTheBoxWithItsOwnMemory) {
  const auto box = FromShardWeight("w", Data({4, 3}), 0, 1, 2);
  ASSERT_TRUE(box.ok());
  std::vector<float> part(5);
  const auto shard = Flatten(*box, {5, 10}, {.data = part.data(), .size_bytes = 20});
  ASSERT_TRUE(shard.ok()) << shard.error().message;
  EXPECT_EQ(shard->local_shape, (Shape{4, 3})) << "the range counts within the box";
  EXPECT_EQ(shard->ElementCount(), 5);
  EXPECT_TRUE(Validate(*shard).ok());
  EXPECT_TRUE(Flatten(*box, {0, 12}).ok()) << "all of it";
  EXPECT_TRUE(Flatten(*box, {7, 7}).ok()) << "nothing of it";
  Expect(Flatten(*box, {5, 13}), ErrorCode::kFlatRange, {"5..13", "12 elements"});
  Expect(Flatten(*box, {-1, 3}), ErrorCode::kFlatRange, {"-1..3"});
  Expect(Flatten(*box, {6, 5}), ErrorCode::kFlatRange, {"6..5"});
  Expect(Flatten(*box, {5, 10}, {.data = part.data(), .size_bytes = 16}), ErrorCode::kLocalShape, {"16 bytes", "[5]"});
  Expect(Flatten(*shard, {0, 1}), ErrorCode::kFlatRange, {"flattened already"});
}

TEST(MakeShard, WithAFlatRangeTakesDataOfOneAxis) {
  ShardSpec spec = Spec();
  spec.flattened_range = FlatRange{2, 6};
  const TensorData right{DType::kBFloat16, {4}, {}}, wrong{DType::kBFloat16, {2, 2}, {}};
  EXPECT_TRUE(MakeShard(spec, &right).ok());
  Expect(MakeShard(spec, &wrong), ErrorCode::kLocalShape, {"[2, 2]", "2..6"});
}

TEST(ReplicaId, IsMainWhenItIsZeroAllOver) {
  const auto is_main = [](std::vector<int64_t> id) { return IsMainReplica(id); };
  EXPECT_TRUE(is_main({0}));
  EXPECT_FALSE(is_main({1}));
  EXPECT_FALSE(is_main({-1}));
  EXPECT_TRUE(is_main({0, 0, 0}));
  EXPECT_FALSE(is_main({0, 0, 5}));
  EXPECT_TRUE(is_main({}));
}

}  // namespace
}  // namespace kintsugi::layout
