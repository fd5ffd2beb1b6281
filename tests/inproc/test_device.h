// A device of the fake driver, as trainers use it: their state lies in its memory, and their updates happen there,
// behind the host's back: until the device has come to the fence of an update, the weights are garbage.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "replica/device/cuda_memory.h"
#include "replica/stream/cuda_driver.h"
#include "tests/inproc/toy_trainer.h"
#include "tests/support/fake_gpu/stream_kernels.h"

namespace kintsugi::inproc {

class TestDevice {
 public:
  explicit TestDevice(bool with_kernels = true);
  ~TestDevice();

  // The tweaks of a trainer on this device.
  Tweaks Hold(Tweaks tweaks = {});
  Memory Allocate(uint64_t size_bytes);
  // A page of its own, mapped as CUDA's expandable segments are.
  static Memory AllocateMapped(uint64_t size_bytes);
  int checksums() const { return kernels_->checksums; }

  // The rank's updates from `step` on do not come to an end before Release; with `lost` they have then never happened.
  void Stall(int rank, Step step, bool lost = true);
  void Release();

 private:
  struct Lane {
    void* stream = nullptr;
    std::unique_ptr<CudaFence> fence;
  };
  Lane& LaneOf(ToyTrainer& trainer);
  const DeviceFence* Defer(ToyTrainer& trainer, Step step);
  Status Synchronize(ToyTrainer& trainer);

  const std::shared_ptr<StreamKernels> kernels_;
  const std::shared_ptr<CudaMemory> memory_;
  using Run = void (*)(void* stream, void (*work)(void*), void* argument);
  const Run run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ToyTrainer*, Lane> lanes_;
  std::vector<uint64_t> allocated_;
  int stalled_rank_ = -1;
  Step stalled_from_;
  bool lost_ = false;
};

}  // namespace kintsugi::inproc
