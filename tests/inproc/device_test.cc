// State in device memory, through the whole run: repaired, patched, compared, saved, loaded and put back. The device is
// a fake whose memory is the host's (tests/support/fake_gpu): what is tested is the host's side.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "replica/save/names.h"
#include "tests/inproc/reference.h"
#include "tests/inproc/test_device.h"

namespace kintsugi::inproc {
namespace {

using namespace std::chrono_literals;

class DeviceState : public testing::TestWithParam<bool> {
 protected:
  WorldOptions OnDevice(Tweaks tweaks = {}) {
    WorldOptions options;
    options.tweaks[-1] = device_.Hold(std::move(tweaks));
    return options;
  }
  TestDevice device_{GetParam()};
};

TEST_P(DeviceState, HasTheDigestsOfTheSameStateOnTheHost) {
  World world(OnDevice());
  world.RunAll();
  ExpectSameAsUndisturbed(world);  // which is compared with a run in host memory
  EXPECT_TRUE(!GetParam() || device_.checksums() > 0);
}

TEST_P(DeviceState, OfAReplacementComesByStream) {
  World world(OnDevice());
  world.script().Hold(1, 4, Point::kUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 4, Point::kUpdate));
  world.Kill(1);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  const core::IncidentRecord incident = OnlyIncident(world);
  EXPECT_EQ(incident.rung, Rung::kRespawn);
  EXPECT_EQ(incident.bytes_moved, 2 * ToyTrainer::kCount * sizeof(float));
}

TEST_P(DeviceState, OfOneRankMayBeReplacedByTheHostsOfAnother) {
  WorldOptions options;  // ranks 0 and 1 on a device, 2 and 3, their replicas, on the host
  options.tweaks[0] = options.tweaks[1] = device_.Hold();
  World world(options);
  world.script().Do(1, 3, Point::kUpdate, Fault::kThrow);
  world.script().Do(2, 5, Point::kUpdate, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(world.incidents().size(), 2u);
}

TEST_P(DeviceState, ThatIsTornOrDamagedIsStreamedAnew) {
  World world(OnDevice());
  world.script().Do(0, 2, Point::kUpdate, Fault::kThrow);
  world.script().Do(3, 4, Point::kBackward, Fault::kMemoryLow);
  world.script().Do(1, 5, Point::kForward, Fault::kMemoryHigh);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  const auto incidents = world.incidents();
  ASSERT_EQ(incidents.size(), 3u);
  EXPECT_EQ(incidents[0].rung, Rung::kRebuild);
  EXPECT_EQ(incidents[1].rung, Rung::kPatch);
  EXPECT_EQ(incidents[1].bytes_moved, ToyTrainer::kCount * sizeof(float));
  EXPECT_EQ(incidents[2].rung, Rung::kRebuild);
}

// Its trainer reports at the top of the next step, when its device is done, and unwinds only once the lock is there.
TEST_P(DeviceState, DamageAfterAFinishedUpdateIsPatchedHoweverSlowlyTheTrainerUnwinds) {
  Tweaks tweaks;
  auto struck = std::make_shared<std::atomic<bool>>(false);
  tweaks.at_step = [struck](ToyTrainer& trainer, Step step) {
    if (trainer.rank() != 3 || step != Step(4) || struck->exchange(true)) return Status::Ok();
    const Status told = trainer.agent().ReportMemoryError({"weights"}, "double bit error");
    while (trainer.agent().Poll().ok()) std::this_thread::sleep_for(1ms);
    return told;
  };
  World world(OnDevice(tweaks));
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kPatch);
}

// Tweaks whose rank 1 meets a CUDA error at step 4, once.
Tweaks WithCudaError(Tweaks tweaks, int error, int query, std::function<std::vector<AddressRange>(ToyTrainer&)> at) {
  auto struck = std::make_shared<std::atomic<bool>>(false);
  tweaks.at_step = [=](ToyTrainer& trainer, Step step) {
    if (trainer.rank() != 1 || step != Step(4) || struck->exchange(true)) return Status::Ok();
    return trainer.agent().ReportCudaError(error, query, at(trainer), "a kernel of the test's");
  };
  return tweaks;
}

std::vector<AddressRange> NothingNamed(ToyTrainer&) { return {}; }

AddressRange RangeOf(const void* data, uint64_t size_bytes) { return {reinterpret_cast<uint64_t>(data), size_bytes}; }

TEST(CudaError, InNamedMappedTensorsIsPatchedWithFreshMemory) {
  TestDevice device;
  WorldOptions options;
  const Tweaks mapped{.allocate = TestDevice::AllocateMapped};
  options.tweaks[-1] = device.Hold(mapped);
  World undisturbed(options);
  undisturbed.RunAll();
  options.tweaks[-1] = device.Hold(WithCudaError(mapped, 214, 0, [](ToyTrainer& trainer) {
    trainer.weights()[3] = 1e30f;
    return std::vector{RangeOf(trainer.weights() + 3, 4)};
  }));
  World world(options);
  world.RunAll();
  ASSERT_EQ(world.ended()->exit_code, 0) << world.ended()->text;
  EXPECT_EQ(world.ended()->final_digest, undisturbed.ended()->final_digest);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world.trainer(rank).State(), undisturbed.trainer(rank).State());
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kPatch);
  EXPECT_EQ(OnlyIncident(world).bytes_moved, 4096u);
}

TEST(CudaError, ElsewhereOrInMemoryThatCannotBeReplacedTakesTheWholeRank) {
  TestDevice device;
  static float nobodys = 0;
  for (const bool registered : {false, true}) {
    WorldOptions options;
    options.tweaks[-1] = device.Hold(WithCudaError({}, 214, 0, [registered](ToyTrainer& trainer) {
      return std::vector{registered ? RangeOf(trainer.weights() + 3, 4) : RangeOf(&nobodys, 4)};
    }));
    World world(options);
    world.RunAll();
    ExpectSameAsUndisturbed(world);
    EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
  }
}

TEST(CudaError, ThatIsNoFaultOfTheDeviceIsAnExceptionAsAnyOther) {
  TestDevice device;
  WorldOptions options;
  options.tweaks[-1] = device.Hold(WithCudaError({}, 2, 0, NothingNamed));
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRetry);
}

TEST(CudaError, ThatCostTheContextEndsTheProcessAndAnotherTakesItsPlace) {
  TestDevice device;
  WorldOptions options;
  options.tweaks[-1] = device.Hold(WithCudaError({}, 700, 700, NothingNamed));
  World world(options);
  world.StartAll();
  const Status left = world.trainers()[1]->Wait();
  EXPECT_EQ(left.code(), StatusCode::kEnded);
  EXPECT_NE(left.message().find("cudaErrorIllegalAddress"), std::string::npos) << left.ToString();
  EXPECT_NE(left.message().find("context is lost"), std::string::npos) << left.ToString();
  EXPECT_EQ(world.trainers()[1]->exit_code(), 1);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
}

INSTANTIATE_TEST_SUITE_P(Kernels, DeviceState, testing::Bool(),
                         [](const auto& test) { return test.param ? "WithKernels" : "WithoutKernels"; });

// ---- an update that its device has not finished --------------------------------------------------------------------

// Until an incident's repair has begun (a run begins with an empty one): what an update left behind on its device is
// known by then.
void AwaitRepair(const World& world) {
  const auto begun = [&] {
    const auto transitions = world.transitions();
    const auto to = [](core::Phase phase) {
      return [phase](const core::Transition& transition) { return transition.to == phase; };
    };
    const auto lock = std::find_if(transitions.begin(), transitions.end(), to(core::Phase::kLock));
    return std::any_of(lock, transitions.end(), to(core::Phase::kRepair));
  };
  while (!begun() && world.incidents().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(DeviceUpdate, UnderWayAtAnIncidentIsFinishedBeforeItsRankParks) {
  TestDevice device;
  WorldOptions options;
  options.tweaks[-1] = device.Hold();
  World world(options);
  for (int rank = 0; rank < 4; ++rank) world.script().Hold(rank, 3, Point::kCommitted);
  world.StartAll();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(world.script().AwaitReached(rank, 3, Point::kCommitted));
  world.Kill(3);  // while the updates of the others are behind them on the host, and under way on the device
  world.Replace(3);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(3));
  EXPECT_EQ(OnlyIncident(world).ranks, std::vector<Rank>{Rank(3)});
}

TEST(DeviceUpdate, ThatNeverComesToAnEndIsTornAndTheStateComesFromAReplica) {
  TestDevice device;
  WorldOptions options;
  options.device_limit = std::chrono::milliseconds(300);
  options.tweaks[-1] = device.Hold();
  World world(options);
  device.Stall(1, Step(3));
  world.script().Hold(2, 4, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(1, 3, Point::kCommitted));
  ASSERT_TRUE(world.script().AwaitReached(2, 4, Point::kForward));
  std::thread release([&] {  // the device comes to itself when its rank has been given up, before it is streamed to
    AwaitRepair(world);
    device.Release();
  });
  world.Kill(2);
  world.Replace(2);
  ExpectSameAsUndisturbed(world);
  release.join();
  const core::IncidentRecord incident = OnlyIncident(world);
  EXPECT_EQ(incident.step, Step(3));
  EXPECT_EQ(incident.bytes_moved, 4 * ToyTrainer::kCount * sizeof(float)) << "of rank 1 and of rank 2";
}

TEST(DeviceUpdate, ThatHangsIsFoundWithoutAnyOtherFault) {
  TestDevice device;
  WorldOptions options;
  options.device_limit = std::chrono::milliseconds(100);
  options.policy.step_timeout = std::chrono::seconds(2);
  options.tweaks[-1] = device.Hold();
  World world(options);
  device.Stall(1, Step(3));
  world.StartAll();
  AwaitRepair(world);
  device.Release();
  ExpectSameAsUndisturbed(world);
  ASSERT_FALSE(world.incidents().empty());
  EXPECT_EQ(world.incidents().front().signal, core::FaultKind::kHang);
  EXPECT_GT(world.incidents().front().bytes_moved, 0u);
}

// A fence whose device reports an error.
class BrokenFence final : public DeviceFence {
 public:
  Result<bool> IsDone() const override {
    return Status(StatusCode::kInternal, "cuEventQuery: CUDA_ERROR_LAUNCH_FAILED (719) on CUDA device 0");
  }
};

TEST(DeviceUpdate, ThatFailedIsTornAtOnce) {
  TestDevice device;
  const BrokenFence broken;
  std::atomic<bool> struck{false};
  WorldOptions options;
  Tweaks tweaks = device.Hold();
  tweaks.update_fence = [&, defer = tweaks.update_fence](ToyTrainer& trainer, Step step) -> const DeviceFence* {
    if (trainer.rank() != 2 || step != Step(4) || struck.exchange(true)) return defer(trainer, step);
    trainer.weights()[1] = 7;  // half an update
    return &broken;
  };
  options.tweaks[-1] = tweaks;
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
  EXPECT_EQ(OnlyIncident(world).step, Step(4));
  EXPECT_EQ(OnlyIncident(world).ranks, std::vector<Rank>{Rank(2)});
}

// A fence that is done when the test says so.
class ManualFence final : public DeviceFence {
 public:
  Result<bool> IsDone() const override {
    asked = true;
    return done.load();
  }
  std::atomic<bool> done{false};
  mutable std::atomic<bool> asked{false};
};

TEST(DeviceInputs, ThatAreNotThereKeepEveryRankOutOfTheUpdate) {
  TestDevice device;
  ManualFence inputs;
  WorldOptions options;
  Tweaks tweaks = device.Hold();
  tweaks.input_fence = [&](ToyTrainer& trainer, Step step) -> const DeviceFence* {
    return trainer.rank() == 1 && step == Step(3) ? &inputs : nullptr;
  };
  options.tweaks[-1] = tweaks;
  World world(options);
  world.StartAll();
  while (!inputs.asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  world.Kill(0);  // rank 1 leaves its wait, and nobody has begun update 3
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  inputs.done = true;
  world.Replace(0);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).step, Step(2));
}

// ---- what else reads and writes state
// ---------------------------------------------------------------------------------

class DeviceCopies : public testing::Test {
 protected:
  DeviceCopies() {
    char name[] = "/tmp/kintsugi_device_test_XXXXXX";
    root_ = mkdtemp(name);
    options_.policy.save_directory = root_;
  }
  ~DeviceCopies() override { std::filesystem::remove_all(root_); }

  TestDevice device_;
  std::string root_;
  WorldOptions options_;
};

TEST_F(DeviceCopies, ASavedRunGoesOnFromItsCheckpoint) {
  options_.policy.save_every = 3;
  options_.tweaks[-1] = device_.Hold();
  World first(options_);
  first.RunAll();
  ExpectSameAsUndisturbed(first);
  options_.policy.save_every = 0;
  options_.policy.resume_directory = root_ + "/" + checkpoint::FolderName(Step(3));
  options_.policy.resume_step = Step(3);
  World second(options_);
  second.RunAll();
  ExpectSameAsUndisturbed(second);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(second.trainer(rank).join_kind(), JoinKind::kResumed);
    EXPECT_EQ(second.trainer(rank).updates(), 3u);
  }
}

TEST_F(DeviceCopies, ASavePointWaitsForTheDevice) {
  options_.policy.save_every = 3;
  options_.tweaks[-1] = device_.Hold();
  World world(options_);
  device_.Stall(1, Step(3), false);
  world.StartAll();
  const auto at_save_point = [&](std::initializer_list<size_t> ranks) {
    return world.OnController([&] {
      const auto& members = world.controller().core().members();
      return std::all_of(ranks.begin(), ranks.end(), [&](size_t rank) { return members[rank].save_point.has_value(); });
    });
  };
  while (!at_save_point({0, 2, 3})) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(at_save_point({1}));
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  device_.Release();
  ExpectSameAsUndisturbed(world);
  EXPECT_TRUE(world.incidents().empty());
}

TEST_F(DeviceCopies, ABitThatFlipsOnTheDeviceIsFoundAndTheRunGoesBackToItsCheckpoint) {
  options_.policy.save_every = 2;
  options_.policy.verify_every = 1;
  std::atomic<bool> flipped{false};
  options_.tweaks[-1] = device_.Hold({.at_step = [&](ToyTrainer& trainer, Step step) {
    if (trainer.rank() == 1 && step == Step(4) && !flipped.exchange(true)) trainer.weights()[5] += 1;
    return Status::Ok();
  }});
  World world(options_);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kReload);
  EXPECT_EQ(OnlyIncident(world).step, Step(2));
}

TEST_F(DeviceCopies, WithNoReplicaLeftTheSnapshotComesBack) {
  options_.policy.save_directory.clear();
  options_.policy.snapshot_every = 1;
  options_.steps = 60;
  World* running = nullptr;
  std::atomic<uint64_t> strikes_at{0};
  std::atomic<int> struck{0};
  options_.tweaks[-1] = device_.Hold({.at_step = [&](ToyTrainer& trainer, Step step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a step that leaves time for a copy
    if (strikes_at == 0 && trainer.rank() == 1) {
      const Step newest = running->OnController([&] { return running->controller().core().snapshots().table().newest(); });
      if (newest > Step(0)) strikes_at = step.value() + 2;
    }
    if (trainer.rank() % 2 == 1 || step.value() != strikes_at || struck++ >= 2) return Status::Ok();
    std::fill(trainer.weights(), trainer.weights() + ToyTrainer::kCount, -5.0f);
    return trainer.agent().ReportCudaError(700, 0, {}, "both replicas of a shard");
  }});
  World world(options_);
  running = &world;
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_GE(struck, 2);
  ASSERT_FALSE(world.incidents().empty());
  EXPECT_EQ(world.incidents().back().rung, Rung::kReload);
  EXPECT_GT(world.incidents().back().step, Step(0));
}

}  // namespace
}  // namespace kintsugi::inproc
