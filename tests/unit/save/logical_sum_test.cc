// The sum of a logical tensor is the same however it is cut, and another one for whatever lies at a wrong place.
#include "replica/save/logical_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "replica/save/arrived_sums.h"
#include "replica/save/describe.h"
#include "replica/save/find.h"
#include "replica/save/seal.h"
#include "replica/save/tensor_sums.h"
#include "replica/save/verify.h"
#include "runtime/base/random.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

using Bytes = std::vector<uint8_t>;

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t axis : shape) count *= axis;
  return count;
}

// A tensor that somebody has whole, to cut shards from.
struct Whole {
  Whole(Shape of, DType type, uint64_t seed) : shape(std::move(of)), dtype(type) {
    Random random(seed);
    bytes.resize(static_cast<size_t>(Count(shape)) * DTypeSize(dtype));
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  }
  // The shard's bytes, element by element; `memory` keeps them, at an address that nothing aligns.
  ShardedTensor Cut(const Shape& offset, const Shape& local, std::optional<FlatRange> flat, Bytes* memory) const {
    const uint64_t size = DTypeSize(dtype);
    ShardedTensor shard;
    shard.key = "w";
    shard.dtype = dtype;
    shard.global_shape = shape;
    shard.local_shape = local;
    shard.global_offset = offset;
    shard.flattened_range = flat;
    memory->assign(1, 0);
    for (int64_t number = flat ? flat->start : 0; number < (flat ? flat->stop : Count(local)); ++number) {
      int64_t rest = number, place = 0, stride = 1;
      for (size_t axis = shape.size(); axis-- > 0;) {
        place += (offset[axis] + rest % local[axis]) * stride;
        rest /= local[axis];
        stride *= shape[axis];
      }
      const auto from = bytes.begin() + place * static_cast<int64_t>(size);
      memory->insert(memory->end(), from, from + static_cast<int64_t>(size));
    }
    shard.memory.data = memory->data() + 1;
    shard.memory.size_bytes = memory->size() - 1;
    EXPECT_TRUE(Validate(shard).ok()) << Describe(shard);
    return shard;
  }
  uint64_t Sum() const {
    Bytes memory;
    return SumOf(Cut(Shape(shape.size(), 0), shape, std::nullopt, &memory));
  }
  static uint64_t SumOf(const ShardedTensor& shard) {
    std::shared_ptr<uint8_t> buffer;
    return LogicalSumOf(shard, nullptr, &buffer).value();
  }
  Shape shape;
  DType dtype;
  Bytes bytes;
};

// Cuts along each axis at random places: tensor parallel, pipeline, experts; some boxes once more into flat ranges,
// as ZeRO.
void RandomCuts(const Shape& shape, Random& random, Shape offset, Shape local, size_t axis,
                const std::function<void(const Shape&, const Shape&, std::optional<FlatRange>)>& each) {
  if (axis < shape.size()) {
    const int parts = 1 + static_cast<int>(random.Below(3));
    int64_t begin = 0;
    for (int part = 0; part < parts; ++part) {
      const int64_t end =
          part + 1 == parts ? shape[axis] : begin + static_cast<int64_t>(random.Below(shape[axis] - begin + 1));
      offset[axis] = begin;
      local[axis] = end - begin;
      RandomCuts(shape, random, offset, local, axis + 1, each);
      begin = end;
    }
    return;
  }
  if (random.Chance(0.5)) return each(offset, local, std::nullopt);
  const int64_t count = Count(local);
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = begin + 1 + static_cast<int64_t>(random.Below(count - begin));
    each(offset, local, FlatRange{begin, end});
    begin = end;
  }
}

TEST(LogicalSum, IsTheSameHoweverTheTensorIsCut) {
  Random random(11);
  const DType dtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kUInt8, DType::kFloat64, DType::kComplex128};
  for (int round = 0; round < 400; ++round) {
    Shape shape(random.Below(4));
    for (int64_t& axis : shape) axis = 1 + static_cast<int64_t>(random.Below(20));
    const Whole whole(shape, dtypes[round % 5], static_cast<uint64_t>(round));
    uint64_t sum = 0, shards = 0;
    RandomCuts(shape, random, Shape(shape.size()), Shape(shape.size()), 0,
               [&](const Shape& offset, const Shape& local, std::optional<FlatRange> flat) {
                 Bytes memory;
                 sum += Whole::SumOf(whole.Cut(offset, local, flat, &memory));
                 ++shards;
               });
    ASSERT_EQ(sum, whole.Sum()) << DescribeShape(shape) << " in " << shards << " shards";
  }
}

TEST(LogicalSum, DoesNotDependOnHowTheBytesCome) {
  const Whole whole({7, 33, 5}, DType::kBFloat16, 1);
  Bytes memory;
  const ShardedTensor shard = whole.Cut({1, 2, 1}, {5, 30, 3}, FlatRange{17, 401}, &memory);
  Random random(2);
  for (int round = 0; round < 50; ++round) {
    LogicalSum sum(shard);
    for (uint64_t at = 0; at < shard.memory.size_bytes;) {
      const uint64_t size = std::min(shard.memory.size_bytes - at, random.Below(100));
      sum.Update({memory.data() + 1 + at, size});
      at += size;
    }
    ASSERT_EQ(sum.value(), Whole::SumOf(shard));
  }
}

TEST(LogicalSum, ChangesWithEveryFlipSwapAndShift) {
  Whole whole({12, 17}, DType::kBFloat16, 5);
  const uint64_t good = whole.Sum();
  for (size_t bit = 0; bit < whole.bytes.size() * 8; ++bit) {
    whole.bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    ASSERT_NE(whole.Sum(), good) << bit;
    whole.bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  // All pairs of elements, also two that share a word.
  const auto element = [&](size_t i) { return whole.bytes.begin() + static_cast<int64_t>(2 * i); };
  for (size_t i = 0; i < whole.bytes.size() / 2; ++i)
    for (size_t j = i + 1; j < whole.bytes.size() / 2; ++j) {
      if (std::equal(element(i), element(i) + 2, element(j))) continue;
      std::swap_ranges(element(i), element(i) + 2, element(j));
      ASSERT_NE(whole.Sum(), good) << i << ' ' << j;
      std::swap_ranges(element(i), element(i) + 2, element(j));
    }
  for (size_t by = 1; by < whole.bytes.size(); ++by) {
    Whole shifted = whole;
    std::rotate(shifted.bytes.begin(), shifted.bytes.begin() + static_cast<int64_t>(by), shifted.bytes.end());
    ASSERT_NE(shifted.Sum(), good) << by;
  }
}

TEST(LogicalSum, ChangesWhereAShardIsTakenForAnother) {
  const Whole whole({16, 24}, DType::kFloat32, 6);
  Bytes a, b;
  for (const auto& [local, other] : {std::pair(Shape{8, 24}, Shape{8, 0}), std::pair(Shape{16, 12}, Shape{0, 12}),
                                     std::pair(Shape{4, 6}, Shape{4, 6}), std::pair(Shape{4, 6}, Shape{0, 6})}) {
    ShardedTensor first = whole.Cut({0, 0}, local, std::nullopt, &a);
    ShardedTensor second = whole.Cut(other, local, std::nullopt, &b);
    const uint64_t good = Whole::SumOf(first) + Whole::SumOf(second), alone = Whole::SumOf(first);
    std::swap(first.memory, second.memory);
    EXPECT_NE(Whole::SumOf(first) + Whole::SumOf(second), good) << DescribeShape(local);
    std::swap(first.memory, second.memory);
    first.global_offset = other;
    EXPECT_NE(Whole::SumOf(first), alone) << DescribeShape(local);
  }
  // The same elements in the order of the columns.
  ShardedTensor rows = whole.Cut({0, 0}, {16, 24}, std::nullopt, &a);
  const uint64_t good = Whole::SumOf(rows);
  rows.global_shape = rows.local_shape = {24, 16};
  EXPECT_EQ(Whole::SumOf(rows), good) << "the shape is not in the sum: it is compared beside it";
  std::shared_ptr<uint8_t> buffer;
  ShardedTensor flat = whole.Cut({0, 0}, {16, 24}, FlatRange{10, 20}, &a);
  const uint64_t at_ten = Whole::SumOf(flat);
  flat.flattened_range = FlatRange{11, 21};
  EXPECT_NE(Whole::SumOf(flat), at_ten);
}

// ---- of a checkpoint ----

TEST(TensorSums, OfCopiesOneCountsAndWhatIsNotWholeHasNone) {
  const Whole whole({8, 4}, DType::kFloat32, 7);
  Bytes a, b;
  const ShardedTensor upper = whole.Cut({0, 0}, {4, 4}, std::nullopt, &a);
  const ShardedTensor lower = whole.Cut({4, 0}, {4, 4}, std::nullopt, &b);
  const auto sums = [&](const std::vector<std::pair<const ShardedTensor*, std::optional<uint64_t>>>& shards) {
    SumGatherer gatherer;
    for (const auto& [shard, sum] : shards) gatherer.Add(*shard, sum);
    return gatherer.Sums();
  };
  const uint64_t x = Whole::SumOf(upper), y = Whole::SumOf(lower);
  const std::vector<TensorSum> good = {{"w", DType::kFloat32, {8, 4}, whole.Sum()}};
  EXPECT_EQ(sums({{&upper, x}, {&lower, y}}), good);
  EXPECT_EQ(sums({{&lower, y}, {&upper, x}, {&lower, y}}), good);
  EXPECT_TRUE(sums({{&upper, x}}).empty()) << "half of it";
  EXPECT_TRUE(sums({{&upper, x}, {&lower, std::nullopt}}).empty());
  EXPECT_TRUE(sums({{&upper, x}, {&lower, y}, {&lower, y + 1}}).empty()) << "copies that differ";
  Bytes c;
  const ShardedTensor middle = whole.Cut({2, 0}, {4, 4}, std::nullopt, &c);
  EXPECT_TRUE(sums({{&upper, x}, {&lower, y}, {&middle, Whole::SumOf(middle)}}).empty()) << "rows twice";
  ShardedTensor other = lower;
  other.dtype = DType::kInt32;
  EXPECT_TRUE(sums({{&upper, x}, {&other, y}}).empty()) << "another type";
}

class SavedSums : public testing::Test {
 protected:
  std::vector<TensorSum> SumsOf(World& world) {
    const auto info = ReadManifest(world.Path(12), files_);
    EXPECT_TRUE(info.ok()) << info.status().ToString();
    return info.ok() ? info->manifest.tensor_sums : std::vector<TensorSum>();
  }
  nlohmann::json Body(const std::string& path) {
    const auto& bytes = files_.Content(path);
    return nlohmann::json::parse(bytes.begin(), bytes.end()).at("body");
  }
  void Put(const std::string& path, const nlohmann::json& body) {
    const std::string text = Seal(body.dump());
    files_.Content(path).assign(text.begin(), text.end());
  }
  MemoryFileSystem files_;
};

TEST_F(SavedSums, AreThoseOfTheStateAsItWas) {
  World world("root", files_, 2 * (2 * kBlockBytes + 40) / 4);  // several blocks a shard
  ASSERT_TRUE(world.Save(12, 1).ok());
  const auto sums = SumsOf(world);
  ASSERT_EQ(sums.size(), 5u);
  EXPECT_EQ(sums[0].key, "expert.whole");
  for (const TensorSum& tensor : sums) {
    uint64_t expected = 0;
    for (int rank : {0, 1}) {
      const ShardedTensor& shard = world.rank(rank).registry().tensors().at(tensor.key);
      EXPECT_EQ(shard.global_shape, tensor.shape);
      const bool is_copy = rank == 1 && shard.local_shape == shard.global_shape && !shard.flattened_range;
      if (!is_copy) expected += Whole::SumOf(shard);
    }
    EXPECT_EQ(tensor.sum, expected) << tensor.key;
    EXPECT_TRUE(tensor.key == "nothing" || tensor.sum != 0) << tensor.key;
  }
  EXPECT_TRUE(Verify(world.Path(12), files_).ok());
  const auto shown = DescribeCheckpoint(world.Path(12), false, files_);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(nlohmann::json::parse(*shown)["tensors"][0]["sum"], ToHex(sums[0].sum));
}

// Blocks keep their checksums; what is told of where they belong does not.
TEST_F(SavedSums, VerifyFindsShardsThatAreTakenForEachOther) {
  World world("root", files_);
  ASSERT_TRUE(world.Save(12, 1).ok());
  const std::string folder = world.Path(12) + "/";
  nlohmann::json manifest = Body(folder + "manifest.json");
  for (int rank : {0, 1}) {
    const std::string part = "part-0000" + std::to_string(rank) + ".json";
    nlohmann::json body = Body(folder + part);
    for (auto& stored : body["shards"][0]["tensors"])
      if (stored["key"] == "layer.bias") stored["global_offset"] = {rank == 0 ? 3 : 0, 0};
    Put(folder + part, body);
    const auto& text = files_.Content(folder + part);
    manifest["parts"][static_cast<size_t>(rank)]["file_bytes"] = text.size();
    manifest["parts"][static_cast<size_t>(rank)]["digest"] = ToHex(ChecksumOf(text));
  }
  Put(folder + "manifest.json", manifest);
  const Status verified = Verify(world.Path(12), files_);
  EXPECT_EQ(verified.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Names(verified.message(), "tensor 'layer.bias' has the sum", "1 damaged")) << verified.ToString();
}

TEST_F(SavedSums, OlderCheckpointsHaveNone) {
  World world("root", files_);
  ASSERT_TRUE(world.Save(12, 1).ok());
  const std::string folder = world.Path(12) + "/";
  nlohmann::json manifest = Body(folder + "manifest.json");
  manifest.erase("tensors");
  manifest.erase("tensor_sum");
  Put(folder + "manifest.json", manifest);
  EXPECT_TRUE(SumsOf(world).empty());
  EXPECT_TRUE(Verify(world.Path(12), files_).ok());
  EXPECT_TRUE(world.LoadAll(world.Path(12)).ok());
}

TEST(ArrivedSums, AreThoseOfTheMemoryInWhateverPartsItArrives) {
  Random random(5);
  const Whole whole({6, 10, 8}, DType::kBFloat16, 3);
  for (int round = 0; round < 20; ++round) {
    Bytes memory;
    std::optional<FlatRange> flat;
    if (round % 2 == 1) flat = FlatRange{7, 100};
    const ShardedTensor shard = whole.Cut({1, 3, 2}, {4, 6, 5}, flat, &memory);
    StateRegistry registry;
    ASSERT_TRUE(registry.AddTensor(shard).ok());
    ArrivedSums sums(registry);
    const std::span<const uint8_t> all(memory.data() + 1, memory.size() - 1);
    std::vector<std::span<const uint8_t>> parts;
    for (size_t at = 0; at < all.size();) {
      parts.push_back(all.subspan(at, std::min<size_t>(all.size() - at, 1 + random.Below(40))));
      at += parts.back().size();
    }
    for (size_t i = parts.size(); i-- > 1;) std::swap(parts[i], parts[random.Below(i + 1)]);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(sums.Whole().empty()) << "before all of it came";
      sums.Add(parts[i]);
    }
    ASSERT_EQ(sums.Whole().size(), 1u);
    EXPECT_EQ(sums.Whole().at("w"), Whole::SumOf(shard));
    Bytes elsewhere(64);
    sums.Add(elsewhere);
    sums.Add({memory.data(), 1});  // in front of it
    EXPECT_EQ(sums.Whole().at("w"), Whole::SumOf(shard));
    EXPECT_ANY_THROW(sums.Add({memory.data() + 2, memory.size() - 1})) << "over the tensor's end";
  }
}

}  // namespace
}  // namespace kintsugi::checkpoint
