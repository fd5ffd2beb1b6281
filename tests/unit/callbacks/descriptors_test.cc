#include "callbacks/state/descriptors.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(DType, NamesAndSizesAgreeBothWays) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(kDTypeLast); ++i) {
    const auto dtype = static_cast<DType>(i);
    ASSERT_TRUE(IsKnown(dtype));
    EXPECT_GT(DTypeSize(dtype), 0u);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
    names.insert(DTypeName(dtype));
  }
  EXPECT_EQ(names.size(), 21u);
  EXPECT_EQ(DTypeSize(DType::kBFloat16), 2u);
  EXPECT_EQ(DTypeSize(DType::kComplex128), 16u);
  EXPECT_EQ(DTypeSize(DType::kUInt16), 2u);
  EXPECT_EQ(DTypeSize(DType::kUInt64), 8u);
  EXPECT_EQ(DTypeSize(DType::kComplex32), 4u);
  EXPECT_EQ(DTypeSize(DType::kFloat8E8M0), 1u);
  EXPECT_EQ(DTypeFromName("float31"), std::nullopt);
}

TEST(DType, AForeignNumberIsUnknownAndHarmless) {
  const auto foreign = static_cast<DType>(250);
  EXPECT_FALSE(IsKnown(foreign));
  EXPECT_EQ(DTypeSize(foreign), 0u);
  EXPECT_EQ(DTypeName(foreign), "unknown");
}

TEST(ShardedTensor, CountsTheElementsOfItsBoxOrOfItsFlattenedRange) {
  ShardedTensor tensor;
  EXPECT_EQ(tensor.ElementCount(), 1) << "no axes: a scalar";
  tensor.local_shape = {3, 4};
  EXPECT_EQ(tensor.ElementCount(), 12);
  tensor.flattened_range = {5, 9};
  EXPECT_EQ(tensor.ElementCount(), 4);
  EXPECT_EQ(tensor.ByteCount(), 16u);
}

TEST(ShardedTensor, DescribesItselfInOneLine) {
  ShardedTensor tensor = Vector("w", nullptr, 12);
  tensor.local_shape = {4};
  tensor.global_offset = {8};
  EXPECT_EQ(Describe(tensor), "w float32 [4] of [12] at [8]");
  tensor.flattened_range = {1, 3};
  EXPECT_EQ(Describe(tensor), "w float32 [4] of [12] at [8] flat 1..3");
}

struct Mistake {
  const char* name;
  std::function<void(ShardedTensor&)> make;
  std::vector<std::string> named;  // what the message must hold beside the key
};

// Each from a valid [4] of [12] at [8].
const std::vector<Mistake>& Mistakes() {
  static const std::vector<Mistake> mistakes = {
      {"dtype", [](ShardedTensor& t) { t.dtype = static_cast<DType>(99); }, {"dtype", "99"}},
      {"layout", [](ShardedTensor& t) { t.layout = -2; }, {"layout", "-2"}},
      {"dimensions",
       [](ShardedTensor& t) {
         t.local_shape = {4, 1};
       },
       {"[12]", "[4, 1]", "[8]"}},
      {"too many dimensions",
       [](ShardedTensor& t) { t.global_shape = t.local_shape = t.global_offset = Shape(9, 1); },
       {"9 dimensions", "8"}},
      {"negative length", [](ShardedTensor& t) { t.local_shape = {-1}; }, {"axis 0", "-1", "12"}},
      {"negative offset", [](ShardedTensor& t) { t.global_offset = {-3}; }, {"axis 0", "-3"}},
      {"outside", [](ShardedTensor& t) { t.global_offset = {9}; }, {"axis 0", "9", "4", "12"}},
      {"offset that overflows", [](ShardedTensor& t) { t.global_offset = {kHuge}; }, {std::to_string(kHuge)}},
      {"too many elements",
       [](ShardedTensor& t) {
         t.global_shape = t.local_shape = {kHuge, 2};
         t.global_offset = {0, 0};
       },
       {"63 bits"}},
      {"too many bytes",
       [](ShardedTensor& t) { t.global_shape = t.local_shape = {kHuge}, t.global_offset = {0}; },
       {"64 bits"}},
      {"range before its box",
       [](ShardedTensor& t) {
         t.flattened_range = {-1, 2};
       },
       {"-1..2", "4 elements"}},
      {"range backwards",
       [](ShardedTensor& t) {
         t.flattened_range = {3, 2};
       },
       {"3..2"}},
      {"range beyond its box",
       [](ShardedTensor& t) {
         t.flattened_range = {0, 5};
       },
       {"0..5", "4 elements"}},
      {"memory size", [](ShardedTensor& t) { t.memory.size_bytes = 15; }, {"15", "16"}},
      {"null memory", [](ShardedTensor& t) { t.memory.data = nullptr; }, {"null"}},
      {"end of the address space",
       [](ShardedTensor& t) { t.memory.data = reinterpret_cast<void*>(~uintptr_t{0} - 3); },
       {"address space"}},
      {"shared without a descriptor", [](ShardedTensor& t) { t.memory.kind = MemoryKind::kShared; }, {"-1"}},
      {"device without a number", [](ShardedTensor& t) { t.memory.kind = MemoryKind::kDevice; }, {"-1"}},
      {"kind of memory", [](ShardedTensor& t) { t.memory.kind = static_cast<MemoryKind>(9); }, {"9"}},
  };
  return mistakes;
}

TEST(Validate, NamesTheKeyAndBothValuesOfEveryMistake) {
  std::vector<float> memory(4);
  for (const Mistake& mistake : Mistakes()) {
    SCOPED_TRACE(mistake.name);
    ShardedTensor tensor = Vector("layer.w", memory.data(), 4);
    tensor.global_shape = {12};
    tensor.global_offset = {8};
    ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor).ToString();
    mistake.make(tensor);
    const Status status = Validate(tensor);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Names(status.message(), "layer.w")) << status.ToString();
    for (const std::string& value : mistake.named) EXPECT_TRUE(Names(status.message(), value)) << status.ToString();
  }
}

TEST(Validate, RefusesAKeyThatIsNoName) {
  std::vector<float> memory(1);
  for (const std::string& key : {std::string(), std::string("a\nb"), std::string("\xFF")})
    EXPECT_EQ(Validate(Vector(key, memory.data(), 1)).code(), StatusCode::kInvalidArgument);
}

TEST(Validate, TakesScalarsAndEmptyTensorsOfAnyShape) {
  float value = 0;
  ShardedTensor scalar = Vector("s", &value, 1);
  scalar.global_shape = scalar.local_shape = scalar.global_offset = {};
  EXPECT_TRUE(Validate(scalar).ok()) << Validate(scalar).ToString();
  ShardedTensor empty = Vector("e", nullptr, 0);
  EXPECT_TRUE(Validate(empty).ok()) << Validate(empty).ToString();
  empty.global_shape = empty.local_shape = {kHuge, kHuge, 0};
  empty.global_offset = {0, 0, 0};
  EXPECT_TRUE(Validate(empty).ok()) << Validate(empty).ToString();
}

TEST(ValidateShard, LooksAtEverythingButTheMemory) {
  ShardedTensor tensor = Vector("w", nullptr, 4);
  EXPECT_TRUE(ValidateShard(tensor).ok());
  EXPECT_FALSE(Validate(tensor).ok());
  tensor.global_offset = {1};
  EXPECT_FALSE(ValidateShard(tensor).ok());
}

}  // namespace
}  // namespace kintsugi
