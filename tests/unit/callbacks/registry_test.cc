#include "callbacks/state/registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

void CaptureNothing(void*, std::vector<uint8_t>*) {}
Status RestoreNothing(void*, const uint8_t*, uint64_t) { return Status::Ok(); }

TEST(StateRegistry, WalksItsStateInKeyOrder) {
  std::vector<float> memory(12);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("c", &memory[0], 2)).ok());
  ShardedTensor expert = Vector("b", &memory[2], 4);
  expert.layout = 1;
  ASSERT_TRUE(registry.AddTensor(expert).ok());
  ASSERT_TRUE(registry.AddTensor(Vector("a", &memory[6], 6)).ok());
  ASSERT_TRUE(registry.AddObject({"z", ObjectKind::kDerived}).ok());
  ASSERT_TRUE(registry.AddObject({"y", ObjectKind::kMirrored, CaptureNothing, RestoreNothing}).ok());

  EXPECT_EQ(registry.ByteCount(), 48u);
  EXPECT_TRUE(registry.HasMirrored());
  const auto dense = registry.TensorsOfLayout(0);
  ASSERT_EQ(dense.size(), 2u);
  EXPECT_EQ(dense[0]->key, "a");
  EXPECT_EQ(dense[1]->key, "c");
  const RegistrySummary summary = registry.Summary();
  ASSERT_EQ(summary.tensors.size(), 3u);
  EXPECT_EQ(summary.tensors[1].key, "b");
  EXPECT_EQ(summary.tensors[1].layout, 1);
  ASSERT_EQ(summary.objects.size(), 2u);
  EXPECT_EQ(summary.objects[0], (ObjectSummary{"y", ObjectKind::kMirrored}));
}

TEST(StateRegistry, AKeyRegisteredTwiceNamesWhatStoodBefore) {
  std::vector<float> memory(8);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("w", &memory[0], 4)).ok());
  ASSERT_TRUE(registry.AddObject({"rng", ObjectKind::kDerived}).ok());

  const Status tensor = registry.AddTensor(Vector("w", &memory[4], 2));
  EXPECT_EQ(tensor.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(tensor.message(), "'w'", "twice", "[4]")) << tensor.ToString();
  const Status object = registry.AddObject({"w", ObjectKind::kDerived});
  EXPECT_TRUE(Names(object.message(), "'w'", "object now", "tensor w float32 [4]")) << object.ToString();
  const Status over_object = registry.AddTensor(Vector("rng", &memory[4], 2));
  EXPECT_TRUE(Names(over_object.message(), "'rng'", "derived object")) << over_object.ToString();
  EXPECT_EQ(registry.tensors().size(), 1u);
  EXPECT_EQ(registry.objects().size(), 1u);
}

TEST(StateRegistry, RefusesRegistrationAfterTheSealAndNamesTheKey) {
  float value = 0;
  StateRegistry registry;
  registry.Seal();
  for (const Status& status : {registry.AddTensor(Vector("late", &value, 1)), registry.AddObject({"late"})}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Names(status.message(), "'late'", "Agent::Run")) << status.ToString();
  }
}

TEST(StateRegistry, RefusesAnObjectOfNoKindOrWithoutItsFunctions) {
  StateRegistry registry;
  const Status none = registry.AddObject({"rng", static_cast<ObjectKind>(7)});
  EXPECT_TRUE(Names(none.message(), "'rng'", "no kind", "7", "derived or mirrored")) << none.ToString();
  const Status no_capture = registry.AddObject({"rng", ObjectKind::kMirrored, nullptr, RestoreNothing});
  EXPECT_TRUE(Names(no_capture.message(), "'rng'", "capture")) << no_capture.ToString();
  const Status no_restore = registry.AddObject({"rng", ObjectKind::kMirrored, CaptureNothing, nullptr});
  EXPECT_TRUE(Names(no_restore.message(), "'rng'", "restore")) << no_restore.ToString();
  EXPECT_EQ(registry.AddObject({""}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(registry.objects().empty());
}

TEST(StateRegistry, ARefusedOverlapNamesBothTensorsAndLeavesNoTrace) {
  std::vector<float> memory(8);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("first", &memory[2], 4)).ok());
  const Status status = registry.AddTensor(Vector("second", &memory[5], 3));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(status.message(), "'first'", "'second'", "+16 bytes", "+12 bytes")) << status.ToString();
  EXPECT_TRUE(registry.AddTensor(Vector("second", &memory[6], 2)).ok());
  EXPECT_TRUE(registry.AddTensor(Vector("third", &memory[0], 2)).ok());
}

TEST(StateRegistry, EmptyTensorsOverlapNothing) {
  std::vector<float> memory(4);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("w", &memory[0], 4)).ok());
  EXPECT_TRUE(registry.AddTensor(Vector("inside", &memory[1], 0)).ok());
  EXPECT_TRUE(registry.AddTensor(Vector("null", nullptr, 0)).ok());
}

// The slow and obvious version: every byte of a small memory has at most one owner.
TEST(StateRegistry, FindsTheSameOverlapsAsAByteMapOnRandomLayouts) {
  Random random(20261121);
  for (int round = 0; round < 400; ++round) {
    std::vector<uint8_t> memory(64);
    std::vector<std::string> owner(memory.size());
    StateRegistry registry;
    for (int i = 0; i < 24; ++i) {
      const uint64_t size = random.Below(9);
      const uint64_t begin = random.Below(memory.size() - size + 1);
      ShardedTensor tensor = Vector("t" + std::to_string(i), memory.data() + begin, static_cast<int64_t>(size));
      tensor.dtype = DType::kUInt8;
      tensor.memory.size_bytes = size;
      std::vector<std::string> met;
      for (uint64_t at = begin; at < begin + size; ++at)
        if (!owner[at].empty()) met.push_back(owner[at]);
      const Status status = registry.AddTensor(tensor);
      ASSERT_EQ(status.ok(), met.empty()) << "round " << round << " tensor " << i << ": " << status.ToString();
      if (!met.empty()) {
        bool named = false;
        for (const std::string& key : met) named |= Names(status.message(), "'" + key + "'");
        ASSERT_TRUE(named) << status.ToString();
        continue;
      }
      for (uint64_t at = begin; at < begin + size; ++at) owner[at] = tensor.key;
    }
  }
}

}  // namespace
}  // namespace kintsugi
