// The default handlers, called as an agent calls them.
#include <gtest/gtest.h>

#include "replica/save/save_handlers.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

class SaveHandlers : public testing::Test {
 protected:
  SaveHandlers() {
    for (int rank = 0; rank < kWorldSize; ++rank) {
      SaveContext context;
      context.registry = &world_.rank(rank).registry();
      context.job = "job-a";
      context.files = &files_;
      context.mirrored_of = [this](Rank of, Step step) -> Result<std::vector<uint8_t>> {
        asked_ = step;
        return world_.rank(of.value()).registry().CaptureMirrored();
      };
      contexts_.push_back(std::move(context));
      HandlerRegistry& handlers = handlers_.emplace_back();
      EXPECT_TRUE(handlers.Register(HandlerKind::kSave, SaveHandler, &contexts_.back()).ok());
      EXPECT_TRUE(handlers.Register(HandlerKind::kRename, RenameHandler, &contexts_.back()).ok());
    }
  }
  HandlerContext Call(int rank, uint64_t step) {
    HandlerContext call;
    call.rank = Rank(rank);
    call.world_size = kWorldSize;
    call.generation = Generation(1);
    call.step = Step(step);
    call.deadline = TimePoint::Max();
    call.cancel = &cancel_;
    call.directory = "root";
    call.partners = {Rank(0), Rank(1)};
    if (rank < 2) call.entries = world_.Request(rank, step, 1).entries;
    return call;
  }
  Status Save(uint64_t step) {
    world_.SetTo(step);
    for (int rank = 0; rank < kWorldSize; ++rank) {
      HandlerContext call = Call(rank, step);
      KINTSUGI_RETURN_IF_ERROR(handlers_[static_cast<size_t>(rank)].Call(HandlerKind::kSave, call));
      EXPECT_EQ(call.bytes_moved > 0, rank < 2);
    }
    HandlerContext call = Call(1, step);
    return handlers_[1].Call(HandlerKind::kRename, call);
  }
  Status LoadEverywhere(const std::string& directory, uint64_t step, uint64_t* found) {
    world_.SetTo(240);
    for (int rank = 0; rank < kWorldSize; ++rank) {
      HandlerContext call = Call(rank, step);
      call.directory = directory;
      call.rung = Rung::kReload;
      KINTSUGI_RETURN_IF_ERROR(LoadHandler(call, &contexts_[static_cast<size_t>(rank)]));
      EXPECT_GT(call.bytes_moved, 0u);
      *found = call.step.value();
    }
    return Status::Ok();
  }

  MemoryFileSystem files_;
  World world_{"root", files_};
  std::vector<SaveContext> contexts_ = [] {
    std::vector<SaveContext> contexts;
    contexts.reserve(kWorldSize);
    return contexts;
  }();
  std::vector<HandlerRegistry> handlers_;
  CancelToken cancel_;
  Step asked_;
};

TEST_F(SaveHandlers, SaveRenameAndReloadBringEveryRankBack) {
  ASSERT_TRUE(Save(12).ok());
  EXPECT_EQ(asked_, Step(12));
  ASSERT_TRUE(Save(20).ok());
  uint64_t found = 0;
  ASSERT_TRUE(LoadEverywhere("root", 0, &found).ok());
  EXPECT_EQ(found, 20u);
  EXPECT_TRUE(world_.IsAt(20));
  ASSERT_TRUE(LoadEverywhere("root", 12, &found).ok());
  EXPECT_TRUE(world_.IsAt(12));
  ASSERT_TRUE(LoadEverywhere("root/step_0000000020", 0, &found).ok());
  EXPECT_TRUE(world_.IsAt(20));
}

TEST_F(SaveHandlers, APublisherRemarksOnStatesThatLack) {
  float memory[3] = {};
  const char* keys[] = {"a.exp_avg", "a.exp_avg_sq", "b.exp_avg"};
  for (int i = 0; i < 3; ++i) {
    const ShardedTensor tensor{.key = keys[i],
                               .global_shape = {1},
                               .local_shape = {1},
                               .global_offset = {0},
                               .memory = {.data = memory + i, .size_bytes = sizeof(float)}};
    ASSERT_TRUE(world_.rank(0).registry().AddTensor(tensor).ok());
  }
  world_.SetTo(12);
  for (int rank = 0; rank < 2; ++rank) {
    HandlerContext call = Call(rank, 12);
    ASSERT_TRUE(handlers_[static_cast<size_t>(rank)].Call(HandlerKind::kSave, call).ok());
    EXPECT_EQ(call.remark, "");
  }
  HandlerContext call = Call(1, 12);
  ASSERT_TRUE(handlers_[1].Call(HandlerKind::kRename, call).ok());
  EXPECT_TRUE(Names(call.remark, "'b'", "'exp_avg_sq'")) << call.remark;
}

TEST_F(SaveHandlers, AReloadOfAnotherStepThanTheRepairNeedsIsRefused) {
  ASSERT_TRUE(Save(12).ok());
  uint64_t found = 0;
  const Status other = LoadEverywhere("root/step_0000000012", 11, &found);
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Names(other.message(), "step 12", "step 11")) << other.ToString();
  EXPECT_EQ(LoadEverywhere("root", 11, &found).code(), StatusCode::kNotFound);
}

TEST_F(SaveHandlers, HandsTheMirroredBytesToWhoWantsThem) {
  ASSERT_TRUE(Save(12).ok());
  std::vector<uint8_t> taken;
  contexts_[3].take_mirrored = [&](Step step, std::vector<uint8_t> bytes) {
    EXPECT_EQ(step, Step(12));
    taken = std::move(bytes);
    return Status::Ok();
  };
  const std::vector<uint8_t> expected = world_.rank(3).registry().CaptureMirrored();
  uint64_t found = 0;
  ASSERT_TRUE(LoadEverywhere("root", 12, &found).ok());
  EXPECT_EQ(taken, expected);
}

TEST_F(SaveHandlers, ANewerGenerationStopsTheSave) {
  cancel_.Cancel();
  const Status status = Save(12);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(Names(status.message(), "'save'", "rank 0", "step 12")) << status.ToString();
}

TEST_F(SaveHandlers, WithoutAFolderOrAContextSayWhatIsMissing) {
  HandlerContext call = Call(0, 12);
  call.directory.clear();
  for (auto* handler : {SaveHandler, RenameHandler, LoadHandler}) {
    EXPECT_EQ(handler(call, &contexts_[0]).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(handler(call, nullptr).code(), StatusCode::kInvalidArgument);
  }
  contexts_[0].mirrored_of = nullptr;
  HandlerContext save = Call(0, 12);
  EXPECT_TRUE(Names(SaveHandler(save, &contexts_[0]).message(), "mirrored_of"));
}

}  // namespace
}  // namespace kintsugi::checkpoint
