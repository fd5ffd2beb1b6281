#include "replica/save/publish.h"

#include <gtest/gtest.h>

#include "callbacks/state/experts.h"
#include "replica/save/names.h"
#include "runtime/base/generation_part.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

std::string Latest(MemoryFileSystem& files) {
  const auto& bytes = files.Content("root/latest");
  return std::string(bytes.begin(), bytes.end());
}

TEST(Publish, MakesTheCheckpointVisibleAndMovesLatest) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(12, 1).ok());
  EXPECT_EQ(Latest(files), "step_0000000012\n");
  EXPECT_FALSE(files.Has("root/step_0000000012.tmp-g1.job-a"));
  const auto found = FindNewestComplete("root", files);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->step(), Step(12));
  EXPECT_EQ(found->manifest.identity.job, "job-a");
  EXPECT_TRUE(Verify(found->path, files).ok());
  ASSERT_TRUE(world.LoadAll(found->path).ok());
  EXPECT_TRUE(world.IsAt(12));
  EXPECT_FALSE(world.IsAt(13));
}

// The parts of two writers together: a state that another rank wrote is not missing.
TEST(Publish, TellsWhichParametersLackAState) {
  const auto publish = [](bool whole) {
    MemoryFileSystem files;
    World world("root", files);
    float memory[4] = {};
    const auto add = [&](int rank, const std::string& key, float* data) {
      const ShardedTensor tensor{.key = key,
                                 .global_shape = {1},
                                 .local_shape = {1},
                                 .global_offset = {0},
                                 .memory = {.data = data, .size_bytes = sizeof(float)}};
      EXPECT_TRUE(world.rank(rank).registry().AddTensor(tensor).ok());
    };
    add(0, "optimizer.exp_avg.a", memory);
    add(0, "optimizer.exp_avg_sq.a", memory + 1);
    add(0, "optimizer.exp_avg.b", memory + 2);
    if (whole) add(1, "optimizer.exp_avg_sq.b", memory + 3);
    EXPECT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
    const auto published = world.PublishStep(12, 1);
    EXPECT_TRUE(published.ok()) << published.status().ToString();
    EXPECT_TRUE(Verify("root/step_0000000012", files).ok());
    return published.ok() ? published->missing_states : std::vector<std::string>();
  };
  EXPECT_TRUE(publish(true).empty());
  const std::vector<std::string> missing = publish(false);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_TRUE(Names(missing[0], "'optimizer.b'", "'exp_avg_sq'", "'optimizer.a'")) << missing[0];
}

// Experts that each rank of an expert-parallel group numbered from 0 on; copies are alike, or say that they are copies.
TEST(Publish, TellsWhichNameIsTwoTensors) {
  const auto publish = [](float first, float second, int64_t replica, const std::string& key = "experts.0.w") {
    MemoryFileSystem files;
    World world("root", files);
    float memory[2] = {first, second};
    for (int rank = 0; rank < 2; ++rank) {
      const ShardedTensor tensor{.key = rank == 0 ? "experts.0.w" : key,
                                 .global_shape = {1},
                                 .local_shape = {1},
                                 .global_offset = {0},
                                 .replica_id = {0, rank * replica},
                                 .memory = {.data = memory + rank, .size_bytes = sizeof(float)}};
      EXPECT_TRUE(world.rank(rank).registry().AddTensor(tensor).ok());
    }
    EXPECT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
    const auto published = world.PublishStep(12, 1);
    EXPECT_TRUE(published.ok()) << published.status().ToString();
    return published.ok() ? published->same_names : std::vector<std::string>();
  };
  EXPECT_TRUE(publish(1, 1, 0).empty());
  EXPECT_TRUE(publish(1, 2, 1).empty());
  EXPECT_TRUE(publish(1, 2, 0, *GlobalExpertKey("experts.0.w", 1, 1)).empty());
  const std::vector<std::string> same = publish(1, 2, 0);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_TRUE(Names(same[0], "'experts.0.w' is two tensors", "ranks 0, 2 and ranks 1, 3", "GlobalExpertKey"))
      << same[0];
}

TEST(Publish, RefusesWhatIsNotComplete) {
  const auto publish = [](auto&& prepare, bool name_writers) {
    MemoryFileSystem files;
    World world("root", files);
    prepare(world, files);
    PublishRequest request = world.ToPublish(12, 1);
    if (!name_writers) request.expected_writers.clear();
    const Status status = Publish(request, files).status();
    EXPECT_FALSE(files.Has("root/step_0000000012"));
    EXPECT_FALSE(files.Has("root/latest"));
    return status;
  };
  const Status nothing = publish([](World&, MemoryFileSystem&) {}, true);
  EXPECT_EQ(nothing.code(), StatusCode::kNotFound) << nothing.ToString();

  const auto without_rank_1 = [](World& world, MemoryFileSystem&) { ASSERT_TRUE(world.Write(0, 12, 1).ok()); };
  const Status writer = publish(without_rank_1, true);
  EXPECT_EQ(writer.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(writer.message(), "ranks 1", "step 12", "generation 1")) << writer.ToString();
  // Without being told who should have written: the parts themselves show the hole.
  const Status hole = publish(without_rank_1, false);
  EXPECT_EQ(hole.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(hole.message(), "layout 0", "ranks 1, 3")) << hole.ToString();

  const Status layout =
      publish([](World& world, MemoryFileSystem&) { ASSERT_TRUE(world.Write(1, 12, 1).ok()); }, false);
  EXPECT_TRUE(Names(layout.message(), "layout 0", "ranks 0, 2")) << layout.ToString();

  const Status objects = publish(
      [](World& world, MemoryFileSystem& files) {
        ASSERT_TRUE(world.Write(0, 12, 1).ok());
        SaveRequest request = world.Request(1, 12, 1);
        request.entries[0].objects_of = {Rank(1)};
        ASSERT_TRUE(WritePart(world.rank(1).registry(), request, world.Mirrored(), files).ok());
      },
      false);
  EXPECT_TRUE(Names(objects.message(), "mirrored objects of ranks 3")) << objects.ToString();

  const Status short_file = publish(
      [](World& world, MemoryFileSystem& files) {
        ASSERT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
        files.Content("root/step_0000000012.tmp-g1.job-a/layout0.shard-1-3.bin").pop_back();
      },
      false);
  EXPECT_EQ(short_file.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Names(short_file.message(), "layout0.shard-1-3.bin")) << short_file.ToString();
}

TEST(Publish, TakesAPartOfObjectsAlone) {
  MemoryFileSystem files;
  World world("root", files);
  world.SetTo(12);
  ASSERT_TRUE(world.Write(0, 12, 1).ok());
  SaveRequest shard = world.Request(1, 12, 1), alone = shard;
  shard.entries[0].objects_of = {Rank(1)};
  alone.writer = Rank(3);
  alone.entries = {{kObjectsAlone, {Rank(3)}, {Rank(3)}}};
  ASSERT_TRUE(WritePart(world.rank(1).registry(), shard, world.Mirrored(), files).ok());
  ASSERT_TRUE(WritePart(world.rank(3).registry(), alone, world.Mirrored(), files).ok());
  PublishRequest request;
  request.root = "root";
  request.job = alone.identity.job;
  request.step = Step(12);
  request.generation = Generation(1);
  request.expected_writers = {Rank(0), Rank(1), Rank(3)};
  const auto published = Publish(request, files);
  ASSERT_TRUE(published.ok()) << published.status().ToString();
  EXPECT_TRUE(files.Has("root/step_0000000012/objects.rank-00003.bin"));
  EXPECT_FALSE(files.Has("root/step_0000000012/layout-1.shard-3.bin"));
}

TEST(Publish, RefusesPartsOfTwoSavesOrOfOneShardTwice) {
  MemoryFileSystem files;
  World world("root", files), other("root", files);
  other.job = "job-b";
  ASSERT_TRUE(world.Write(0, 12, 1).ok() && other.Write(1, 12, 1).ok());
  // Each job has a folder of its own; somebody copied one's files into the other's.
  ASSERT_TRUE(world.Write(1, 12, 1).ok());
  for (const std::string name : {"part-00001.json", "layout0.shard-1-3.bin"})
    files.Content("root/step_0000000012.tmp-g1.job-a/" + name) =
        files.Content("root/step_0000000012.tmp-g1.job-b/" + name);
  const Status mixed = world.PublishStep(12, 1).status();
  EXPECT_EQ(mixed.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(mixed.message(), "job-a", "job-b")) << mixed.ToString();

  SaveRequest twice = world.Request(1, 12, 1);
  twice.entries[0].holders = {Rank(0), Rank(1), Rank(3)};
  ASSERT_TRUE(WritePart(world.rank(1).registry(), twice, world.Mirrored(), files).ok());
  const Status overlap = world.PublishStep(12, 1).status();
  EXPECT_TRUE(Names(overlap.message(), "shard of rank 0", "ranks 0 and 1")) << overlap.ToString();
}

TEST(Publish, MayBeRepeatedAlsoAfterTheFolderWasRenamed) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(12, 1).ok());
  EXPECT_TRUE(world.PublishStep(12, 1).ok());
  ASSERT_TRUE(files.Remove("root/latest").ok());
  EXPECT_TRUE(world.PublishStep(12, 1).ok());
  EXPECT_EQ(Latest(files), "step_0000000012\n");
  // Another job with the same numbers has not been published by that.
  world.job = "job-b";
  EXPECT_FALSE(world.PublishStep(12, 1).ok());
}

TEST(Publish, ReplacesACheckpointOfTheSameStepInOneMoment) {
  for (const bool can_exchange : {true, false}) {
    MemoryFileSystem files;
    if (!can_exchange) files.CannotExchange();
    World world("root", files);
    ASSERT_TRUE(world.Save(12, 1).ok());
    // A dump right after a periodic save.
    ASSERT_TRUE(world.Save(12, 2).ok());
    EXPECT_EQ(FindNewestComplete("root", files)->manifest.identity.generation, Generation(can_exchange ? 2 : 1));
    EXPECT_FALSE(files.Has("root/step_0000000012.tmp-g2.job-a"));
    ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
    EXPECT_TRUE(world.IsAt(12));
    // A damaged one always makes room.
    files.Content("root/step_0000000012/layout0.shard-1-3.bin")[3] ^= 1;
    ASSERT_TRUE(world.Save(12, 3).ok());
    ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
  }
}

TEST(Publish, AnOlderGenerationCannotMoveLatestBack) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(12, 5).ok());
  for (uint64_t step : {11, 12}) {
    const Status late = world.Save(step, 4);
    EXPECT_EQ(late.code(), StatusCode::kCancelled) << late.ToString();
    EXPECT_EQ(Latest(files), "step_0000000012\n");
  }
  // Generations of another start of the run are not comparable.
  world.job = "job-b";
  EXPECT_TRUE(world.Save(14, 1).ok());
  EXPECT_EQ(Latest(files), "step_0000000014\n");
}

TEST(Publish, WithoutAQuorumLeavesLatestAndOldCheckpointsAlone) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(10, 1).ok());
  world.SetTo(12);
  ASSERT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
  PublishRequest request = world.ToPublish(12, 1);
  request.moves_latest = false;
  request.keep.newest = 1;
  ASSERT_TRUE(Publish(request, files).ok());
  EXPECT_EQ(Latest(files), "step_0000000010\n");
  EXPECT_EQ(FindNewestComplete("root", files)->step(), Step(10));
  // By its own path it is a checkpoint like any other, and the only one left is taken.
  ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
  EXPECT_TRUE(world.IsAt(12));
  ASSERT_TRUE(files.Remove("root/step_0000000010").ok());
  EXPECT_EQ(FindNewestComplete("root", files)->step(), Step(12));
}

// A network in pieces: each part saves where it stands, into one root, at the same time.
TEST(Publish, PartsThatSaveOneStepDoNotTouchEachOther) {
  MemoryFileSystem files;
  World world("root", files);
  world.SetTo(12);
  const uint64_t first = (2ull << kPartShift) + 5, second = (3ull << kPartShift) + 5;
  for (const uint64_t generation : {first, second})
    for (const int rank : {0, 1}) ASSERT_TRUE(world.Write(rank, 12, generation).ok());
  for (const uint64_t generation : {second, first}) {
    PublishRequest request = world.ToPublish(12, generation);
    request.moves_latest = false;
    const auto published = Publish(request, files);
    EXPECT_TRUE(published.ok()) << published.status().ToString();
    EXPECT_FALSE(files.Has(UnfinishedFolderName(Step(12), Generation(generation), world.job)));
  }
  ASSERT_TRUE(world.LoadAll(world.Path(12)).ok());
  EXPECT_TRUE(world.IsAt(12));
  // Nor do they fence off a majority that goes on.
  ASSERT_TRUE(world.Save(12, 6).ok());
  EXPECT_EQ(Latest(files), "step_0000000012\n");
}

TEST(Rotation, KeepsTheNewestCompleteOnesAndWhatLatestNames) {
  MemoryFileSystem files;
  World world("root", files);
  for (uint64_t step : {10, 20, 30}) ASSERT_TRUE(world.Save(step, 1, 2).ok());
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(30), Step(20)}));
  const auto published = [&] {
    world.SetTo(40);
    EXPECT_TRUE(world.Write(0, 40, 1).ok() && world.Write(1, 40, 1).ok());
    return world.PublishStep(40, 1, 1);
  }();
  ASSERT_TRUE(published.ok());
  EXPECT_EQ(published->removed, (std::vector<std::string>{"root/step_0000000030", "root/step_0000000020"}));
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(40)}));
}

TEST(Rotation, KeepsThoseOfEveryNthStepForGood) {
  MemoryFileSystem files;
  World world("root", files);
  world.keep_every = 30;
  for (uint64_t step = 10; step <= 100; step += 10) ASSERT_TRUE(world.Save(step, 1, 2).ok());
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(100), Step(90), Step(60), Step(30)}));
  ASSERT_TRUE(world.Save(110, 1, 2).ok());
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(110), Step(100), Step(90), Step(60), Step(30)}));
}

TEST(Rotation, DoesNotCountADamagedOneAndLeavesHigherStepsAlone) {
  MemoryFileSystem files;
  World world("root", files);
  for (uint64_t step : {10, 20}) ASSERT_TRUE(world.Save(step, 1, 5).ok());
  World abandoned("root", files);
  abandoned.job = "job-0";
  ASSERT_TRUE(abandoned.Save(99, 1, 5).ok());
  ASSERT_TRUE(files.Remove("root/step_0000000020/layout0.shard-1-3.bin").ok());
  ASSERT_TRUE(world.Save(30, 1, 2).ok());
  // 20 is damaged: 10 is the second complete one and stays.
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(99), Step(30), Step(20), Step(10)}));
  EXPECT_EQ(FindNewestComplete("root", files)->step(), Step(30));
  ASSERT_TRUE(world.Save(40, 1, 2).ok());
  EXPECT_EQ(*ListSteps("root", files), (std::vector<Step>{Step(99), Step(40), Step(30)}));
}

TEST(Rotation, SweepsAttemptsThatNobodyFinishes) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Write(0, 8, 9).ok());
  ASSERT_TRUE(world.Write(0, 12, 7).ok());
  ASSERT_TRUE(world.Save(12, 6).ok());
  EXPECT_FALSE(files.Has("root/step_0000000008.tmp-g9.job-a"));
  EXPECT_TRUE(files.Has("root/step_0000000012.tmp-g7.job-a")) << "a newer generation may be writing it";
}

TEST(Rotation, LeavesTheAttemptsOfAnotherJobAlone) {
  MemoryFileSystem files;
  World world("root", files), other("root", files);
  other.job = "job-b";
  ASSERT_TRUE(other.Write(0, 8, 1).ok());
  ASSERT_TRUE(other.Write(0, 12, 1).ok());
  ASSERT_TRUE(world.Save(12, 2).ok());
  EXPECT_TRUE(files.Has("root/step_0000000008.tmp-g1.job-b"));
  EXPECT_TRUE(files.Has("root/step_0000000012.tmp-g1.job-b"));
}

TEST(Rotation, AFailureToRemoveIsAWarningNotAnError) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(10, 1, 1).ok());
  world.SetTo(20);
  ASSERT_TRUE(world.Write(0, 20, 1).ok() && world.Write(1, 20, 1).ok());
  // The operation that removes the old manifest is the first removal after `latest` was moved.
  for (int operation = 1; operation < 200; ++operation) {
    MemoryFileSystem disk;
    World again("root", disk);
    ASSERT_TRUE(again.Save(10, 1, 1).ok());
    again.SetTo(20);
    ASSERT_TRUE(again.Write(0, 20, 1).ok() && again.Write(1, 20, 1).ok());
    disk.FailAt(operation, EACCES, true);
    const auto published = again.PublishStep(20, 1, 1);
    disk.FailNever();
    if (!published.ok()) continue;
    EXPECT_FALSE(published->warnings.empty()) << "at operation " << operation;
    EXPECT_EQ(FindNewestComplete("root", disk)->step(), Step(20));
    return;
  }
  FAIL() << "no operation failed after publication";
}

}  // namespace
}  // namespace kintsugi::checkpoint
