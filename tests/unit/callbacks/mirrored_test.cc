// Mirrored objects: the bytes that CaptureMirrored gives come over the network or from a file when they return.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "callbacks/state/registry.h"
#include "runtime/base/random.h"
#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

// An object that is its bytes, and counts how often it was taken back.
struct Box {
  std::vector<uint8_t> bytes;
  int restored = 0;
  Status refusal;

  ShardedObject Mirrored(const std::string& key) {
    return {key, ObjectKind::kMirrored,
            [](void* context, std::vector<uint8_t>* out) {
              const auto& box = *static_cast<Box*>(context);
              out->insert(out->end(), box.bytes.begin(), box.bytes.end());
            },
            [](void* context, const uint8_t* data, uint64_t size) {
              auto& box = *static_cast<Box*>(context);
              if (!box.refusal.ok()) return box.refusal;
              box.bytes.assign(data, data + size);
              ++box.restored;
              return Status::Ok();
            },
            this};
  }
};

struct Rig {
  Box data{{1, 2, 3}}, empty, rng{{9, 8, 7, 6, 5}};
  StateRegistry registry;
  Rig() {
    EXPECT_TRUE(registry.AddObject(rng.Mirrored("rng")).ok());
    EXPECT_TRUE(registry.AddObject({"derived", ObjectKind::kDerived}).ok());
    EXPECT_TRUE(registry.AddObject(data.Mirrored("data")).ok());
    EXPECT_TRUE(registry.AddObject(empty.Mirrored("empty")).ok());
  }
  int restored() const { return data.restored + empty.restored + rng.restored; }
};

TEST(Mirrored, ComeBackAsTheyWereCaptured) {
  Rig rig;
  const std::vector<uint8_t> bytes = rig.registry.CaptureMirrored();
  rig.data.bytes = {};
  rig.rng.bytes = {0};
  rig.empty.bytes = {4, 4};
  ASSERT_TRUE(rig.registry.RestoreMirrored(bytes).ok());
  EXPECT_EQ(rig.data.bytes, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(rig.rng.bytes, (std::vector<uint8_t>{9, 8, 7, 6, 5}));
  EXPECT_TRUE(rig.empty.bytes.empty());
  EXPECT_EQ(rig.registry.CaptureMirrored(), bytes);
}

TEST(Mirrored, ARegistryWithoutThemGivesAndTakesNothing) {
  StateRegistry registry;
  EXPECT_TRUE(registry.CaptureMirrored().empty());
  EXPECT_TRUE(registry.RestoreMirrored({}).ok());
  EXPECT_EQ(registry.RestoreMirrored({0}).code(), StatusCode::kDataLoss);
}

TEST(Mirrored, EveryTruncationIsRefusedBeforeAnyObjectIsTouched) {
  Rig rig;
  const std::vector<uint8_t> bytes = rig.registry.CaptureMirrored();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Status status =
        rig.registry.RestoreMirrored({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size;
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_EQ(rig.registry.RestoreMirrored(longer).code(), StatusCode::kDataLoss);
  EXPECT_EQ(rig.restored(), 0);
}

TEST(Mirrored, BytesOfOtherObjectsAreRefusedByName) {
  Rig rig;
  Box other{{1}};
  StateRegistry registry;
  ASSERT_TRUE(registry.AddObject(other.Mirrored("scheduler")).ok());
  const Status status = rig.registry.RestoreMirrored(registry.CaptureMirrored());
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Names(status.message(), "'scheduler'", "'data'")) << status.ToString();
}

TEST(Mirrored, ARefusingObjectIsNamedAndKeepsItsCode) {
  Rig rig;
  rig.rng.refusal = {StatusCode::kFailedPrecondition, "wrong engine"};
  const Status status = rig.registry.RestoreMirrored(rig.registry.CaptureMirrored());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(status.message(), "'rng'", "wrong engine")) << status.ToString();
}

// Frames whose lengths lie: huge, wrapping, or pointing into each other. Never a read past the end (asan), never half.
TEST(Mirrored, HostileBytesAreRefusedWholeOrTakenWhole) {
  Random random(7);
  Rig rig;
  const std::vector<uint8_t> good = rig.registry.CaptureMirrored();
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t edits = 1 + random.Below(4); edits > 0; --edits)
      bytes[random.Below(bytes.size())] = random.Chance(0.3) ? 0xFF : static_cast<uint8_t>(random.Next());
    if (random.Chance(0.2)) bytes.resize(random.Below(bytes.size()));
    const int before = rig.restored();
    const Status status = rig.registry.RestoreMirrored(bytes);
    ASSERT_EQ(rig.restored() - before, status.ok() ? 3 : 0) << status.ToString();
    refused += !status.ok();
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status.ToString();
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace kintsugi
