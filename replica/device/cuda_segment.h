// CudaSegment: device memory that outlives its process, by a descriptor that another process holds.
//
// What: an allocation of CUDA's virtual memory management (cuMemCreate with a POSIX descriptor), mapped for good at one address. The
// driver keeps it while a descriptor of it is open, in a process that need not use CUDA: an H200 kept 16 GiB of a process that SIGKILL or
// an illegal address had ended, and another had them mapped 0.5 ms later (tests/bench/records/gpu.json).
// Ownership: unmapped, and its own descriptor closed, with the object.
// Errors: kNotFound: the driver lacks the functions; kResourceExhausted: no memory; kInternal with the driver's number.
// Units: bytes; what is mapped is rounded up to the driver's granularity (2 MiB).
#pragma once

#include <memory>

#include "callbacks/state/kept_memory.h"
#include "runtime/base/result.h"

namespace kintsugi {

class CudaDevice;

class CudaSegment final : public KeptMemory {
 public:
  // `device` is bound by every call. Not zeroed.
  static Result<std::unique_ptr<KeptMemory>> Allocate(std::shared_ptr<const CudaDevice> device, uint64_t size_bytes);
  ~CudaSegment() override;

  const Memory& memory() const override { return memory_; }
  // Waits for all that was enqueued on the device.
  Status Replace(const UniqueFd& file) override;

 private:
  struct Functions;
  CudaSegment(std::shared_ptr<const CudaDevice> device, std::unique_ptr<const Functions> functions);
  Status Make(uint64_t size_bytes);
  Status Map(uint64_t handle);

  const std::shared_ptr<const CudaDevice> device_;
  const std::unique_ptr<const Functions> functions_;
  Memory memory_;
  uint64_t address_ = 0;
  size_t mapped_ = 0;  // 0: nothing is
};

}  // namespace kintsugi
