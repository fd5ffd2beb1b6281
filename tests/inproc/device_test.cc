// State in device memory, through the whole run: repaired, patched, compared, saved, loaded and put back. The device is
// a fake whose memory is the host's (tests/support/fake_gpu): what is tested is the host's side.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "replica/device/cuda_memory.h"
#include "tests/inproc/reference.h"
#include "tests/support/fake_gpu/stream_kernels.h"

namespace kintsugi::inproc {
namespace {

using namespace std::chrono_literals;

// The fake device, its memory, and what a trainer's tweaks need of both.
class Device {
 public:
  explicit Device(bool with_kernels = true)
      : kernels_(with_kernels ? std::make_shared<StreamKernels>(FAKE_GPU) : nullptr),
        memory_(CudaMemory::Open(0, kernels_, FAKE_GPU).value()) {
    setenv("KINTSUGI_CUDA_LIBRARY", FAKE_GPU, 1);  // for fresh memory, which the agent loads by itself
  }

  Tweaks Hold(Tweaks tweaks = {}) {
    tweaks.device = memory_;
    if (!tweaks.allocate) tweaks.allocate = [this](uint64_t size_bytes) { return Allocate(size_bytes); };
    return tweaks;
  }
  Memory Allocate(uint64_t size_bytes) {
    uint64_t at = 0;
    EXPECT_EQ(memory_->cuda()->driver().memory_allocate(&at, size_bytes), 0);
    std::memset(reinterpret_cast<void*>(at), 0, size_bytes);
    return {.data = reinterpret_cast<void*>(at), .size_bytes = size_bytes, .kind = MemoryKind::kDevice, .device = 0};
  }
  const CudaMemory& memory() const { return *memory_; }
  int checksums() const { return kernels_->checksums; }

 private:
  std::shared_ptr<StreamKernels> kernels_;
  std::shared_ptr<CudaMemory> memory_;
};

// A page of its own for each tensor, mapped as CUDA's expandable segments are.
Memory AllocateMapped(uint64_t) {
  constexpr uint64_t kPage = 4096;
  void* const library = dlopen(FAKE_GPU, RTLD_NOW);
  const auto create =
      reinterpret_cast<int (*)(uint64_t*, size_t, const void*, unsigned long long)>(dlsym(library, "cuMemCreate"));
  const auto map =
      reinterpret_cast<int (*)(uint64_t, size_t, size_t, uint64_t, unsigned long long)>(dlsym(library, "cuMemMap"));
  const auto access =
      reinterpret_cast<int (*)(uint64_t, size_t, const void*, size_t)>(dlsym(library, "cuMemSetAccess"));
  void* const at = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t handle = 0;
  EXPECT_EQ(create(&handle, kPage, nullptr, 0), 0);
  EXPECT_EQ(map(reinterpret_cast<uint64_t>(at), kPage, 0, handle, 0), 0);
  EXPECT_EQ(access(reinterpret_cast<uint64_t>(at), kPage, nullptr, 0), 0);
  return {.data = at, .size_bytes = kPage, .kind = MemoryKind::kDevice, .device = 0};
}

class DeviceState : public testing::TestWithParam<bool> {
 protected:
  WorldOptions OnDevice(Tweaks tweaks = {}) {
    WorldOptions options;
    options.tweaks[-1] = device_.Hold(std::move(tweaks));
    return options;
  }
  Device device_{GetParam()};
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

// Tweaks whose rank 1 meets a CUDA error at step 4, once.
Tweaks WithCudaError(Tweaks tweaks, int error, int query,
                     std::function<std::vector<device::AddressRange>(ToyTrainer&)> at) {
  auto struck = std::make_shared<std::atomic<bool>>(false);
  tweaks.at_step = [=](ToyTrainer& trainer, Step step) {
    if (trainer.rank() != 1 || step != Step(4) || struck->exchange(true)) return Status::Ok();
    return trainer.agent().ReportCudaError(error, query, at(trainer), "a kernel of the test's");
  };
  return tweaks;
}

device::AddressRange RangeOf(const void* data, uint64_t size_bytes) {
  return {reinterpret_cast<uint64_t>(data), size_bytes};
}

TEST(CudaError, InNamedMappedTensorsIsPatchedWithFreshMemory) {
  Device device;
  WorldOptions options;
  options.tweaks[-1] = device.Hold({.allocate = AllocateMapped});
  World undisturbed(options);
  undisturbed.RunAll();
  options.tweaks[-1] = WithCudaError(options.tweaks[-1], 214, 0, [](ToyTrainer& trainer) {
    trainer.weights()[3] = 1e30f;
    return std::vector{RangeOf(trainer.weights() + 3, 4)};
  });
  World world(options);
  world.RunAll();
  ASSERT_EQ(world.ended()->exit_code, 0) << world.ended()->text;
  EXPECT_EQ(world.ended()->final_digest, undisturbed.ended()->final_digest);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world.trainer(rank).State(), undisturbed.trainer(rank).State());
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kPatch);
  EXPECT_EQ(OnlyIncident(world).bytes_moved, 4096u);
}

TEST(CudaError, ElsewhereOrInMemoryThatCannotBeReplacedTakesTheWholeRank) {
  Device device;
  static float nobodys = 0;
  for (const bool registered : {false, true}) {
    WorldOptions options;
    options.tweaks[-1] = WithCudaError(device.Hold(), 214, 0, [registered](ToyTrainer& trainer) {
      return std::vector{registered ? RangeOf(trainer.weights() + 3, 4) : RangeOf(&nobodys, 4)};
    });
    World world(options);
    world.RunAll();
    ExpectSameAsUndisturbed(world);
    EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
  }
}

TEST(CudaError, ThatIsNoFaultOfTheDeviceIsAnExceptionAsAnyOther) {
  Device device;
  WorldOptions options;
  options.tweaks[-1] =
      WithCudaError(device.Hold(), 2, 0, [](ToyTrainer&) { return std::vector<device::AddressRange>(); });
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRetry);
}

TEST(CudaError, ThatCostTheContextEndsTheProcessAndAnotherTakesItsPlace) {
  Device device;
  WorldOptions options;
  options.tweaks[-1] =
      WithCudaError(device.Hold(), 700, 700, [](ToyTrainer&) { return std::vector<device::AddressRange>(); });
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

}  // namespace
}  // namespace kintsugi::inproc
