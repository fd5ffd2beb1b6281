// CudaMemory and CudaFence: DeviceMemory and DeviceFence (callbacks/state/device_memory.h) for CUDA devices.
//
//   auto memory = CudaMemory::Open(ordinal);  // the driver is loaded at run time
//   agent->SetDeviceMemory(*memory);
//
// Kernels are optional: with those of MakeCudaKernels (library kintsugi::kernels_cuda) the device computes checksums
// itself, so that a digest needs no copy to the host. With an NCCL of its own state goes from device to device over it, where
// no other link was asked for and the other rank has the same.
// What: copies on streams of its own, in pieces of 4 MiB through pinned buffers, two in flight; to and from pinned host
// memory directly. Each call takes a lane (stream, buffers) from a free list and gives it back; there are as many as
// calls at once. A lane whose device did not come to an end in time is not used again, and freed only if it has come to
// one when this object goes.
// Threads: as callbacks/state/device_memory.h.
// Order: as callbacks/state/device_memory.h.
// Errors: as callbacks/state/device_memory.h.
// Memory: 8 MiB of pinned memory per call at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "callbacks/state/device_memory.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class ByteKernels;  // MakeCudaKernels gives one
class CudaDevice;   // the library's own
struct NcclApi;     // LoadNccl gives one

class KINTSUGI_EXPORT CudaMemory final : public DeviceMemory {
 public:
  // `kernels` are of the same device (null: none; checksums are then computed on the host). `path`: that driver library
  // and no other.
  // Errors: kNotFound where there is no driver, kUnavailable where it has no such device.
  static Result<std::shared_ptr<CudaMemory>> Open(int ordinal, std::shared_ptr<const ByteKernels> kernels = nullptr,
                                                  const std::string& path = "");
  explicit CudaMemory(std::shared_ptr<CudaDevice> device, std::shared_ptr<const ByteKernels> kernels = nullptr,
                      std::shared_ptr<const NcclApi> nccl = nullptr);
  ~CudaMemory() override;

  int device() const override;
  bool Holds(const void* data) const override;
  Status Read(void* host, const void* from, uint64_t size_bytes, const CopyLimit& limit = {}) const override;
  Status Write(void* to, const void* host, uint64_t size_bytes, const CopyLimit& limit = {}) const override;
  Status Settle() const override;
  bool CanSum() const override { return kernels_ != nullptr; }
  Status BlockSums(const void* data, uint64_t size_bytes, uint64_t block_bytes, uint64_t* sums,
                   const CopyLimit& limit = {}) const override;
  Result<std::shared_ptr<uint8_t>> AllocateHost(uint64_t size_bytes) const override;
  std::shared_ptr<void> Pin(void* host, uint64_t size_bytes) const override;
  Result<std::unique_ptr<KeptMemory>> AllocateKept(uint64_t size_bytes) const override;
  bool HasPeerLinks() const override { return nccl_ != nullptr; }

  const std::shared_ptr<CudaDevice>& cuda() const { return device_; }
  const std::shared_ptr<const ByteKernels>& kernels() const { return kernels_; }
  const std::shared_ptr<const NcclApi>& nccl() const { return nccl_; }

 private:
  class Use;
  class Lanes;

  const std::shared_ptr<CudaDevice> device_;
  const std::shared_ptr<const ByteKernels> kernels_;
  const std::shared_ptr<const NcclApi> nccl_;
  const std::unique_ptr<Lanes> lanes_;
};

// An event on a stream of the trainer's. One object is recorded again for every update:
//   fence->Record(stream); agent->EndUpdate(step, *fence);
class KINTSUGI_EXPORT CudaFence final : public DeviceFence {
 public:
  static Result<std::unique_ptr<CudaFence>> Make(std::shared_ptr<CudaDevice> device);
  ~CudaFence() override;

  // Stands behind everything that was enqueued on `stream` (CUstream or cudaStream_t; null: the legacy default stream).
  Status Record(void* stream);
  // True before the first Record.
  Result<bool> IsDone() const override;

 private:
  explicit CudaFence(std::shared_ptr<CudaDevice> device);
  const std::shared_ptr<CudaDevice> device_;
  void* event_ = nullptr;
};

}  // namespace kintsugi
