// Save points, and who writes what there; the handlers here only record.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

struct Recorder {
  std::mutex mutex;
  std::map<uint64_t, std::vector<std::vector<Rank>>> shards;  // by step: the holders of each shard that was written
  std::vector<uint64_t> renamed;

  Tweaks Record() {
    Tweaks tweaks;
    tweaks.after_registration = [this](ToyTrainer& trainer) {
      KINTSUGI_RETURN_IF_ERROR(trainer.agent().RegisterHandler(HandlerKind::kSave, Save, this));
      return trainer.agent().RegisterHandler(HandlerKind::kRename, Rename, this);
    };
    return tweaks;
  }
  static Status Save(HandlerContext& call, void* self) {
    auto& recorder = *static_cast<Recorder*>(self);
    std::lock_guard lock(recorder.mutex);
    for (const SaveEntry& entry : call.entries) recorder.shards[call.step.value()].push_back(entry.holders);
    return Status::Ok();
  }
  static Status Rename(HandlerContext& call, void* self) {
    auto& recorder = *static_cast<Recorder*>(self);
    std::lock_guard lock(recorder.mutex);
    recorder.renamed.push_back(call.step.value());
    return Status::Ok();
  }
};

WorldOptions Saving(Recorder& recorder, uint64_t every) {
  WorldOptions options;
  options.policy.save_directory = "nothing is written there";
  options.policy.save_every = every;
  options.tweaks[-1] = recorder.Record();
  return options;
}

// Until the controller has heard of each rank that it stands there.
void AwaitSteps(World& world, const std::vector<uint64_t>& steps, Step (*of)(const core::ControllerCore&, Rank)) {
  const auto equal = [&] {
    return world.OnController([&] {
      for (size_t r = 0; r < steps.size(); ++r)
        if (of(world.controller().core(), Rank(static_cast<int32_t>(r))) != Step(steps[r])) return false;
      return true;
    });
  };
  while (!equal()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Feeds the order once the controller knows in which step each rank stands, so that its pause is not overtaken; returns
// when the order has reached every rank.
void Order(World& world, const core::ControllerEvent& order, const std::vector<uint64_t>& steps) {
  AwaitSteps(world, steps, [](const core::ControllerCore& core, Rank rank) {
    return core.members()[static_cast<size_t>(rank.value())].begun;
  });
  world.Feed(order);
  AwaitSteps(world, steps, [](const core::ControllerCore& core, Rank rank) { return core.saves().points().rounds().begun(rank); });
}

TEST(SavePoint, ComesEverySoManyStepsAndEachShardIsWrittenOnce) {
  Recorder recorder;
  World world(Saving(recorder, 2));
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(recorder.renamed, (std::vector<uint64_t>{2, 4, 6}));
  for (auto& [step, holders] : recorder.shards) {
    std::sort(holders.begin(), holders.end());
    EXPECT_EQ(holders, (std::vector<std::vector<Rank>>{{Rank(0), Rank(2)}, {Rank(1), Rank(3)}})) << "step " << step;
  }
}

TEST(SavePoint, SurvivesAFaultAndChangesNoBit) {
  Recorder recorder;
  World world(Saving(recorder, 3));
  world.script().Do(1, 4, Point::kForward, Fault::kThrow);
  world.script().Do(2, 5, Point::kUpdate, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(recorder.renamed, (std::vector<uint64_t>{3, 6}));
}

TEST(SavePoint, AnOperatorsSaveMeetsAllRanksAtOneBoundary) {
  Recorder recorder;
  World world(Saving(recorder, 0));
  // When the order comes two ranks stand in step 3 and two in step 4: the pause must move to 4.
  world.script().Hold(0, 3, Point::kCommitted);
  world.script().Hold(1, 3, Point::kUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(0, 3, Point::kCommitted));
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kUpdate));
  for (int rank : {2, 3}) ASSERT_TRUE(world.script().AwaitReached(rank, 4, Point::kBackward));
  Order(world, core::OperatorSave{}, {3, 3, 4, 4});
  world.script().ReleaseAll();
  ExpectSameAsUndisturbed(world);
  ASSERT_EQ(recorder.renamed.size(), 1u);
  EXPECT_EQ(recorder.renamed.front(), 4u);
  EXPECT_EQ(recorder.shards[recorder.renamed.front()].size(), 2u);
}

TEST(SavePoint, AnOperatorsStopSavesAndLeavesWith75) {
  Recorder recorder;
  World world(Saving(recorder, 0));
  world.script().Hold(3, 2, Point::kBackward);
  world.StartAll();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(world.script().AwaitReached(rank, 2, Point::kBackward));
  Order(world, core::OperatorStop{}, {2, 2, 2, 2});
  world.script().ReleaseAll();
  world.WaitAll();
  EXPECT_EQ(world.ended()->exit_code, 75);
  EXPECT_EQ(recorder.renamed, std::vector<uint64_t>{2});
  EXPECT_EQ(world.ended()->committed, Step(2));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world.result(rank).code(), StatusCode::kEnded);
    EXPECT_EQ(world.trainer(rank).exit_code(), 75);
  }
}

TEST(SavePoint, ARankLostWhileOthersWaitThereIsReplacedAndTheRunGoesOn) {
  Recorder recorder;
  World world(Saving(recorder, 3));
  world.script().Hold(2, 3, Point::kCommitted);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(2, 3, Point::kCommitted));
  const auto others_wait = [&] {
    return world.OnController([&] {
      const auto& members = world.controller().core().members();
      return members[0].save_point && members[1].save_point && members[3].save_point;
    });
  };
  while (!others_wait()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  world.Kill(2);
  world.Replace(2);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(3));
}

TEST(Dump, WithoutAReplacementTheSurvivorsSaveAndLeaveWith75) {
  Recorder recorder;
  WorldOptions options = Saving(recorder, 0);
  options.policy.max_respawns = 0;
  World world(options);
  world.script().Hold(1, 4, Point::kUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 4, Point::kUpdate));
  world.Kill(1);
  world.WaitAll();
  EXPECT_EQ(world.ended()->exit_code, 75) << world.ended()->text;
  ASSERT_EQ(recorder.renamed.size(), 1u);
  EXPECT_EQ(recorder.shards[recorder.renamed.front()].size(), 2u);
  for (int rank : {0, 2, 3}) EXPECT_EQ(world.trainer(rank).exit_code(), 75);
}

}  // namespace
}  // namespace kintsugi::inproc
