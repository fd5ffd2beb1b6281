#include "replica/save/load.h"

#include <gtest/gtest.h>

#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

class LoadCheckpoint : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(world_.Save(12, 1).ok()); }
  // Loads into a copy of rank 1's registry in which one tensor was changed; its memory is `memory_`.
  template <typename Change>
  Status LoadWith(const std::string& key, Change change) {
    StateRegistry registry;
    ShardedTensor tensor = world_.rank(1).registry().tensors().at(key);
    change(tensor);
    tensor.memory.size_bytes = tensor.ByteCount();
    memory_.assign(tensor.memory.size_bytes + 1, 0xAB);
    tensor.memory.data = memory_.data();
    const Status added = registry.AddTensor(tensor);
    EXPECT_TRUE(added.ok()) << added.ToString();
    return Load(registry, {world_.Path(12), Rank(1)}, files_).status();
  }
  MemoryFileSystem files_;
  World world_{"root", files_};
  std::vector<uint8_t> memory_;
};

TEST_F(LoadCheckpoint, GivesEveryRankItsOwnStateAndObjects) {
  ASSERT_TRUE(world_.LoadAll(world_.Path(12)).ok());
  EXPECT_TRUE(world_.IsAt(12));
}

TEST_F(LoadCheckpoint, NamesKeyAndBothShardsWhenTheLayoutDiffersAndTouchesNothing) {
  struct Case {
    const char* key;
    void (*change)(ShardedTensor&);
    std::vector<std::string> named;
  };
  const std::vector<Case> cases = {
      {"optimizer.master",
       [](ShardedTensor& t) {
         t.flattened_range = FlatRange{16, 48};
       },
       {"flat 16..48", "flat 32..64"}},
      {"optimizer.master", [](ShardedTensor& t) { t.flattened_range.reset(); }, {"flat 32..64"}},
      {"optimizer.master", [](ShardedTensor& t) { t.dtype = DType::kInt32; }, {"int32", "float32"}},
      {"layer.bias",
       [](ShardedTensor& t) {
         t.global_offset = {2, 0};
       },
       {"at [2, 0]", "at [3, 0]"}},
      {"layer.bias",
       [](ShardedTensor& t) {
         t.global_shape = {7, 5};
       },
       {"of [7, 5]", "of [6, 5]"}},
      {"layer.bias",
       [](ShardedTensor& t) {
         t.local_shape = {1, 5};
       },
       {"[1, 5] of"}},
      {"layer.bias", [](ShardedTensor& t) { t.layout = 1; }, {"layout 1", "layout 0"}},
  };
  for (const Case& mismatch : cases) {
    const Status status = LoadWith(mismatch.key, mismatch.change);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Names(status.message(), mismatch.key, "rank 1", "reshard")) << status.ToString();
    for (const std::string& value : mismatch.named) EXPECT_TRUE(Names(status.message(), value)) << status.ToString();
    for (uint8_t byte : memory_) ASSERT_EQ(byte, 0xAB);
  }
  const Status absent = LoadWith("layer.bias", [](ShardedTensor& t) { t.key = "layer.new"; });
  EXPECT_EQ(absent.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(absent.message(), "layer.new", "not in the checkpoint")) << absent.ToString();
  // What has no element is not missed where who saved did not know of it, and refused where it was another.
  const Status nothing = LoadWith("nothing", [](ShardedTensor& t) { t.key = "nothing.new"; });
  EXPECT_TRUE(nothing.ok()) << nothing.ToString();
  const Status other = LoadWith("nothing", [](ShardedTensor& t) { t.dtype = DType::kInt32; });
  EXPECT_TRUE(Names(other.message(), "nothing", "int32", "float32")) << other.ToString();
}

TEST_F(LoadCheckpoint, TakesTheShardOfItsOwnHoldersWhereTwoLookAlike) {
  // "nothing" and "scalar" are stored by both writers; make them differ.
  MemoryFileSystem files;
  World world("root", files);
  world.SetTo(12);
  ASSERT_TRUE(world.Write(0, 12, 1).ok());
  world.SetTo(13);
  ASSERT_TRUE(world.Write(1, 12, 1).ok());
  ASSERT_TRUE(world.PublishStep(12, 1).ok());
  ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
  for (int rank : {0, 1, 2, 3}) {
    const auto* scalar = static_cast<const double*>(world.rank(rank).registry().tensors().at("scalar").memory.data);
    EXPECT_EQ(*scalar, rank % 2 ? 13.5 : 12.5) << rank;
  }
}

TEST_F(LoadCheckpoint, RefusesARankWhoseObjectsAreNotStored) {
  const auto loaded = Load(world_.rank(1).registry(), {world_.Path(12), Rank(9)}, files_);
  EXPECT_EQ(loaded.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(loaded.status().message(), "rank 9", "mirrored objects", "world size 4"))
      << loaded.status().ToString();
}

TEST_F(LoadCheckpoint, StopsWhenSupersededOrOutOfTime) {
  CancelToken cancel;
  cancel.Cancel();
  const auto cancelled = Load(world_.rank(1).registry(), {world_.Path(12), Rank(1), TimePoint::Max(), &cancel}, files_);
  EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
  const auto late = Load(world_.rank(1).registry(), {world_.Path(12), Rank(1), TimePoint()}, files_);
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(LoadCheckpoint, WithoutAManifestThereIsNothingToLoad) {
  EXPECT_EQ(world_.LoadAll(world_.Path(13)).code(), StatusCode::kNotFound);
  ASSERT_TRUE(files_.Remove(world_.Path(12) + "/manifest.json").ok());
  EXPECT_EQ(world_.LoadAll(world_.Path(12)).code(), StatusCode::kNotFound);
}

TEST(LoadLarge, VerifiesAndNamesTheDamagedBlock) {
  MemoryFileSystem files;
  World world("root", files, 2 * (9 * static_cast<int64_t>(kBlockBytes) + 400) / 4);
  ASSERT_TRUE(world.Save(12, 1).ok());
  ASSERT_TRUE(Verify(world.Path(12), files).ok());
  ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
  EXPECT_TRUE(world.IsAt(12));

  // layer.bias (60 bytes) and nothing come before optimizer.master, which so begins at byte 64.
  const uint64_t block = 6;
  files.Content("root/step_0000000012/layout0.shard-1-3.bin")[64 + block * kBlockBytes + 99] ^= 0x10;
  for (const Status& status : {Verify(world.Path(12), files), world.LoadAll(world.Path(12))}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_TRUE(Names(status.message(), "optimizer.master", "block 6 of 10", "layout0.shard-1-3.bin",
                      std::to_string(64 + block * kBlockBytes)))
        << status.ToString();
  }
  EXPECT_TRUE(Inspect(world.Path(12), files).ok()) << "sizes alone are right";
}

}  // namespace
}  // namespace kintsugi::checkpoint
