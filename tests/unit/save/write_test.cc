// What WritePart puts on the disk, and how it fails.
#include "replica/save/write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "replica/save/names.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

nlohmann::json Body(MemoryFileSystem& files, const std::string& path) {
  const auto& bytes = files.Content(path);
  return nlohmann::json::parse(bytes.begin(), bytes.end()).at("body");
}

TEST(WritePart, PutsEveryTensorAlignedAtTheOffsetItTells) {
  MemoryFileSystem files;
  World world("root", files, 2 * (2 * kBlockBytes + 40) / 4);  // each half: two blocks and a rest
  world.SetTo(9);
  ASSERT_TRUE(world.Write(0, 9, 3).ok());
  const std::string folder = "root/step_0000000009.tmp-g3.job-a/";
  const auto body = Body(files, folder + "part-00000.json");
  EXPECT_EQ(body["schema"], 1);
  EXPECT_EQ(body["job"], "job-a");
  EXPECT_EQ(body["step"], 9);
  EXPECT_EQ(body["generation"], 3);
  EXPECT_EQ(body["world_size"], 4);
  EXPECT_EQ(body["layouts"], (std::vector<int>{0, 1}));
  ASSERT_EQ(body["shards"].size(), 2u);
  EXPECT_EQ(body["shards"][0]["file"], "layout0.shard-0-2.bin");
  EXPECT_EQ(body["shards"][1]["file"], "layout1.shard-0-1-2-3.bin");

  size_t tensors = 0;
  for (const auto& shard : body["shards"]) {
    const auto& file = files.Content(folder + shard["file"].get<std::string>());
    EXPECT_EQ(file.size(), shard["file_bytes"]);
    uint64_t end = 0;
    for (const auto& stored : shard["tensors"]) {
      ++tensors;
      const ShardedTensor& live = world.rank(0).registry().tensors().at(stored["key"]);
      const uint64_t offset = stored["offset"];
      EXPECT_EQ(offset % 64, 0u);
      EXPECT_GE(offset, end);
      ASSERT_EQ(stored["size_bytes"], live.memory.size_bytes);
      end = offset + live.memory.size_bytes;
      ASSERT_LE(end, file.size());
      EXPECT_TRUE(std::equal(file.begin() + static_cast<std::ptrdiff_t>(offset),
                             file.begin() + static_cast<std::ptrdiff_t>(end),
                             static_cast<const uint8_t*>(live.memory.data)))
          << live.key;
      EXPECT_EQ(stored["blocks"].get<std::string>().size(), 16 * BlockCount(live.memory.size_bytes));
    }
  }
  EXPECT_EQ(tensors, 5u);
  EXPECT_EQ(body["objects"].size(), 2u);
}

TEST(WritePart, LeavesNothingThatAReaderWouldTake) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Write(0, 9, 3).ok());
  ASSERT_TRUE(world.Write(1, 9, 3).ok());
  EXPECT_EQ(FindNewestComplete("root", files).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(ListSteps("root", files)->empty());
}

TEST(WritePart, MayBeRepeatedAndRemovesAttemptsOfOlderGenerations) {
  MemoryFileSystem files;
  World world("root", files);
  world.SetTo(9);
  ASSERT_TRUE(world.Write(0, 9, 3).ok());
  ASSERT_TRUE(world.Write(0, 9, 3).ok());
  ASSERT_TRUE(world.Write(0, 8, 3).ok());
  ASSERT_TRUE(world.Write(1, 9, 4).ok());
  EXPECT_FALSE(files.Has("root/step_0000000009.tmp-g3.job-a"));
  EXPECT_TRUE(files.Has("root/step_0000000008.tmp-g3.job-a"));
  ASSERT_TRUE(world.Write(0, 9, 4).ok());
  EXPECT_TRUE(world.PublishStep(9, 4).ok());
}

TEST(WritePart, RefusesARequestThatContradictsItself) {
  MemoryFileSystem files;
  World world("root", files);
  const auto status = [&](auto&& change) {
    SaveRequest request = world.Request(0, 9, 3);
    change(request);
    return WritePart(world.rank(0).registry(), request, world.Mirrored(), files).status();
  };
  const std::vector<std::pair<std::string, Status>> cases = {
      {"root", status([](auto& r) { r.root.clear(); })},
      {"world size 0", status([](auto& r) { r.identity.world_size = 0; })},
      {"rank 7", status([](auto& r) { r.writer = Rank(7); })},
      {"rank -1", status([](auto& r) { r.entries[0].holders.push_back(Rank(-1)); })},
      {"rank 4", status([](auto& r) { r.entries[0].objects_of.push_back(Rank(4)); })},
      {"cannot write", status([](auto& r) { r.entries[0].holders = {Rank(2)}; })},
      {"twice", status([](auto& r) { r.entries[1] = r.entries[0]; })},
      {"job", status([](auto& r) { r.identity.job = "a\nb"; })},
  };
  for (const auto& [named, refused] : cases) {
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << named;
    EXPECT_TRUE(Names(refused.message(), named, "step 9", "generation 3", "rank")) << refused.ToString();
  }
  EXPECT_FALSE(files.Has("root"));
}

TEST(WritePart, StopsWhenSupersededOrOutOfTimeAndLeavesNothing) {
  MemoryFileSystem files;
  World world("root", files);
  CancelToken cancel;
  SaveRequest request = world.Request(0, 9, 3);
  request.cancel = &cancel;
  // Superseded in the middle: while the mirrored objects are asked for.
  const MirroredOf cancelling = [&](Rank) -> Result<std::vector<uint8_t>> {
    cancel.Cancel();
    return std::vector<uint8_t>{1};
  };
  const Status superseded = WritePart(world.rank(0).registry(), request, cancelling, files).status();
  EXPECT_EQ(superseded.code(), StatusCode::kCancelled) << superseded.ToString();
  EXPECT_FALSE(files.Has("root/step_0000000009.tmp-g3.job-a"));

  request.cancel = nullptr;
  request.deadline = TimePoint();
  const Status late = WritePart(world.rank(0).registry(), request, world.Mirrored(), files).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Names(late.message(), "elapsed", "limit", "rank 0", "step 9")) << late.ToString();
}

TEST(WritePart, SaysThatAnotherWriterHasFailedWhereThatOneHasRemovedTheFolder) {
  MemoryFileSystem files;
  World world("root", files);
  files.CountFromHere();
  ASSERT_TRUE(world.Write(0, 9, 3).ok());
  const int operations = files.operations();
  int told = 0;
  for (int operation = 1; operation <= operations; ++operation) {
    MemoryFileSystem shared;
    World there("root", shared);
    const std::string folder = "root/step_0000000009.tmp-g3.job-a";
    shared.ActBefore(operation, [&] { EXPECT_TRUE(shared.Remove(folder).ok()); });
    const Status status = there.Write(0, 9, 3);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << "operation " << operation << ": " << status.ToString();
    EXPECT_TRUE(Names(status.message(), "another writer", folder, "rank 0")) << status.ToString();
    ++told;
  }
  EXPECT_GT(told, 3) << "of " << operations;
}

TEST(WritePart, NamesTheRankWhoseMirroredObjectsAreNotThere) {
  MemoryFileSystem files;
  World world("root", files);
  const MirroredOf none = [](Rank) -> Result<std::vector<uint8_t>> {
    return Status(StatusCode::kNotFound, "not kept at this step");
  };
  const Status status = WritePart(world.rank(0).registry(), world.Request(0, 9, 3), none, files).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Names(status.message(), "mirrored objects of rank 0", "not kept")) << status.ToString();
}

TEST(WritePart, RefusesMemoryOnADeviceByName) {
  MemoryFileSystem files;
  World world("root", files);
  StateRegistry registry;
  ShardedTensor tensor = world.rank(0).registry().tensors().at("layer.bias");
  tensor.memory.kind = MemoryKind::kDevice;
  tensor.memory.device = 1;
  ASSERT_TRUE(registry.AddTensor(tensor).ok());
  const Status status = WritePart(registry, world.Request(0, 9, 3), world.Mirrored(), files).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(status.message(), "layer.bias", "device 1")) << status.ToString();
}

}  // namespace
}  // namespace kintsugi::checkpoint
