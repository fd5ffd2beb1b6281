#include "tests/inproc/test_device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <functional>

namespace kintsugi::inproc {
namespace {

using namespace std::chrono_literals;

// Long enough that a host that does not wait sees garbage.
constexpr auto kUpdateTime = 3ms;

}  // namespace

TestDevice::TestDevice(bool with_kernels)
    : kernels_(with_kernels ? std::make_shared<StreamKernels>(FAKE_GPU) : nullptr),
      memory_(CudaMemory::Open(0, kernels_, FAKE_GPU).value()),
      run_(reinterpret_cast<Run>(dlsym(dlopen(FAKE_GPU, RTLD_NOW), "fakeStreamRun"))) {
  setenv("KINTSUGI_CUDA_LIBRARY", FAKE_GPU, 1);  // for fresh memory, which the agent loads by itself
}

TestDevice::~TestDevice() {
  Release();
  for (auto& [trainer, lane] : lanes_) memory_->cuda()->driver().stream_destroy(lane.stream);
  for (uint64_t at : allocated_) memory_->cuda()->driver().memory_free(at);
}

Tweaks TestDevice::Hold(Tweaks tweaks) {
  tweaks.device = memory_;
  if (!tweaks.allocate) tweaks.allocate = [this](uint64_t size_bytes) { return Allocate(size_bytes); };
  if (!tweaks.update_fence)
    tweaks.update_fence = [this](ToyTrainer& trainer, Step step) { return Defer(trainer, step); };
  // What the trainer's own kernels do by being on one stream.
  tweaks.at_step = [this, then = std::move(tweaks.at_step)](ToyTrainer& trainer, Step step) {
    KINTSUGI_RETURN_IF_ERROR(Synchronize(trainer));
    return then ? then(trainer, step) : Status::Ok();
  };
  return tweaks;
}

Memory TestDevice::Allocate(uint64_t size_bytes) {
  uint64_t at = 0;
  EXPECT_EQ(memory_->cuda()->driver().memory_allocate(&at, size_bytes), 0);
  std::memset(reinterpret_cast<void*>(at), 0, size_bytes);
  std::lock_guard lock(mutex_);
  allocated_.push_back(at);
  return {.data = reinterpret_cast<void*>(at), .size_bytes = size_bytes, .kind = MemoryKind::kDevice, .device = 0};
}

Memory TestDevice::AllocateMapped(uint64_t) {
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

TestDevice::Lane& TestDevice::LaneOf(ToyTrainer& trainer) {
  std::lock_guard lock(mutex_);
  Lane& lane = lanes_[&trainer];
  if (!lane.stream) {
    EXPECT_EQ(memory_->cuda()->driver().stream_create(&lane.stream, 1), 0);
    lane.fence = CudaFence::Make(memory_->cuda()).value();
  }
  return lane;
}

// The host has computed the update at once; the device is made to do it later.
const DeviceFence* TestDevice::Defer(ToyTrainer& trainer, Step step) {
  Lane& lane = LaneOf(trainer);
  float* const weights = trainer.weights();
  std::vector<float> updated(weights, weights + ToyTrainer::kCount);
  std::fill(weights, weights + ToyTrainer::kCount, -1e9f);
  auto* const work = new std::function<void()>([this, weights, updated, step, rank = trainer.rank()] {
    std::this_thread::sleep_for(kUpdateTime);
    std::unique_lock lock(mutex_);
    bool stalled = false;
    changed_.wait(lock, [&] {
      const bool stalls = rank == stalled_rank_ && step >= stalled_from_;
      stalled = stalled || (stalls && lost_);
      return !stalls;
    });
    if (!stalled) std::copy(updated.begin(), updated.end(), weights);
  });
  run_(
      lane.stream,
      [](void* argument) {
        const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
        (*owned)();
      },
      work);
  EXPECT_TRUE(lane.fence->Record(lane.stream).ok());
  return lane.fence.get();
}

Status TestDevice::Synchronize(ToyTrainer& trainer) {
  Lane& lane = LaneOf(trainer);
  for (;;) {
    KINTSUGI_ASSIGN_OR_RETURN(const bool done, lane.fence->IsDone());
    if (done) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(trainer.agent().Poll());
    std::this_thread::sleep_for(1ms);
  }
}

void TestDevice::Stall(int rank, Step step, bool lost) {
  std::lock_guard lock(mutex_);
  stalled_rank_ = rank;
  stalled_from_ = step;
  lost_ = lost;
}

void TestDevice::Release() {
  {
    std::lock_guard lock(mutex_);
    stalled_rank_ = -1;
  }
  changed_.notify_all();
}

}  // namespace kintsugi::inproc
