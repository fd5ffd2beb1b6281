#include "callbacks/state/relocation.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/random.h"
#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

class RelocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(registry_.AddTensor(Vector("first", &memory_[0], 4)).ok());
    ASSERT_TRUE(registry_.AddTensor(Vector("second", &memory_[4], 4)).ok());
    ASSERT_TRUE(registry_.AddTensor(Vector("empty", nullptr, 0)).ok());
    ASSERT_TRUE(registry_.AddObject({"z", ObjectKind::kDerived}).ok());
    registry_.Seal();
  }
  std::vector<float> memory_ = std::vector<float>(16);
  StateRegistry registry_;
};

TEST_F(RelocationTest, AMovedTensorLiesInItsNewPlaceAndNothingElseChanges) {
  Relocation relocation(registry_);
  ASSERT_TRUE(relocation.Move(Vector("first", &memory_[8], 4)).ok());
  EXPECT_EQ(registry_.tensors().at("first").memory.data, &memory_[0]) << "until the task is over";
  const RegistrySummary before = registry_.Summary();
  registry_ = relocation.Moved();
  EXPECT_EQ(registry_.tensors().at("first").memory.data, &memory_[8]);
  EXPECT_EQ(registry_.tensors().at("second").memory.data, &memory_[4]);
  EXPECT_EQ(registry_.Summary(), before);
  EXPECT_TRUE(registry_.sealed());
}

TEST_F(RelocationTest, APlaceThatWasLeftIsFreeAndOnesOwnMayBeReachedInto) {
  Relocation relocation(registry_);
  EXPECT_FALSE(relocation.Move(Vector("second", &memory_[2], 4)).ok());
  ASSERT_TRUE(relocation.Move(Vector("first", &memory_[8], 4)).ok());
  EXPECT_TRUE(relocation.Move(Vector("second", &memory_[2], 4)).ok());
  EXPECT_TRUE(relocation.Move(Vector("second", &memory_[0], 4)).ok());
  EXPECT_TRUE(relocation.Move(Vector("first", &memory_[4], 4)).ok());
  registry_ = relocation.Moved();
  EXPECT_EQ(registry_.tensors().at("first").memory.data, &memory_[4]) << "they have changed places";
  EXPECT_EQ(registry_.tensors().at("second").memory.data, &memory_[0]);
}

TEST_F(RelocationTest, ARefusedMoveNamesWhatIsWrongAndLeavesNoTrace) {
  Relocation relocation(registry_);
  const Status unknown = relocation.Move(Vector("third", &memory_[8], 4));
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Names(unknown.message(), "'third'")) << unknown.ToString();
  const Status overlap = relocation.Move(Vector("second", &memory_[1], 4));
  EXPECT_EQ(overlap.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(overlap.message(), "'first'", "'second'", "overlap")) << overlap.ToString();
  const Status larger = relocation.Move(Vector("first", &memory_[8], 3));
  EXPECT_TRUE(Names(larger.message(), "'first'", "[3]", "[4]")) << larger.ToString();
  ShardedTensor elsewhere = Vector("first", &memory_[8], 4);
  elsewhere.layout = 1;
  EXPECT_TRUE(Names(relocation.Move(elsewhere).message(), "of layout 1", "of layout 0"));
  EXPECT_FALSE(relocation.Move(Vector("first", nullptr, 4)).ok());
  EXPECT_FALSE(relocation.Move(Vector("first", &memory_[6], 4)).ok()) << "the refused one still lies where it lay";
  registry_ = relocation.Moved();
  EXPECT_EQ(registry_.tensors().at("first").memory.data, &memory_[0]);
  EXPECT_EQ(registry_.tensors().at("second").memory.data, &memory_[4]);
}

TEST_F(RelocationTest, WhatIsRemovedIsGoneAndLeavesItsPlace) {
  Relocation relocation(registry_);
  ASSERT_TRUE(relocation.Move(Vector("first", &memory_[8], 4)).ok());
  ASSERT_TRUE(relocation.Remove("first").ok());
  EXPECT_TRUE(relocation.Move(Vector("second", &memory_[8], 4)).ok()) << "where it had moved to";
  EXPECT_EQ(relocation.Remove("first").code(), StatusCode::kNotFound) << "it is gone already";
  EXPECT_EQ(relocation.Remove("third").code(), StatusCode::kNotFound);
  EXPECT_EQ(relocation.Move(Vector("first", &memory_[0], 4)).code(), StatusCode::kNotFound);
  EXPECT_TRUE(relocation.Remove("empty").ok());
  registry_ = relocation.Moved();
  EXPECT_EQ(registry_.tensors().size(), 1u);
  EXPECT_EQ(registry_.tensors().at("second").memory.data, &memory_[8]);
  EXPECT_EQ(registry_.objects().size(), 1u);
}

// The slow and obvious version: every byte of a small memory has at most one owner.
TEST(Relocation, FindsTheSameOverlapsAsAByteMapOnRandomMoves) {
  Random random(20261123);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> memory(64);
    StateRegistry registry;
    const auto tensor = [&](int number, uint64_t begin) {
      ShardedTensor made = Vector("t" + std::to_string(number), memory.data() + begin, 6);
      made.dtype = DType::kUInt8;
      made.memory.size_bytes = 6;
      return made;
    };
    std::vector<uint64_t> begins;
    for (int i = 0; i < 5; ++i) {
      begins.push_back(static_cast<uint64_t>(i) * 6);
      ASSERT_TRUE(registry.AddTensor(tensor(i, begins.back())).ok());
    }
    Relocation relocation(registry);
    for (int move = 0; move < 40; ++move) {
      const size_t who = random.Below(begins.size());
      const uint64_t to = random.Below(memory.size() - 6 + 1);
      bool free = true;
      for (size_t other = 0; other < begins.size(); ++other)
        free &= other == who || begins[other] + 6 <= to || to + 6 <= begins[other];
      ASSERT_EQ(relocation.Move(tensor(static_cast<int>(who), to)).ok(), free) << "round " << round << " move " << move;
      if (free) begins[who] = to;
    }
    registry = relocation.Moved();
    for (size_t i = 0; i < begins.size(); ++i)
      ASSERT_EQ(registry.tensors().at("t" + std::to_string(i)).memory.data, memory.data() + begins[i]);
  }
}

}  // namespace
}  // namespace kintsugi
