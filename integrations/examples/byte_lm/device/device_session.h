// DeviceSession: everything that `--device cuda` needs on a machine, opened before a rank joins: driver and context,
// NCCL, cuBLAS, kernels, a stream, and the memory of registered state.
//
// What: a spare opens it too, so that a rank that it replaces waits for no context. PrepareEnvironment comes first,
// while the process has one thread: it fixes what cuBLAS and NCCL read from the environment.
// Threads: the trainer's.
// Ownership: outlives agent and trainer.
// Errors: Open says kInvalidArgument, as for a wrong option, with what is missing and the remedy.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "integrations/examples/byte_lm/device/device_compute.h"
#include "replica/device/cuda_memory.h"
#include "replica/stream/nccl_api.h"

namespace kintsugi::byte_lm::device {

using CodeFactory = std::function<Result<DeviceCode>(int ordinal)>;

// Where a process stands on its host, as a launcher tells it.
struct DevicePlace {
  int ordinal = 0;
  int devices = 0;      // of this host for this run; 0: not told
  int local_ranks = 1;  // of this host
  int world_size = 1;

  // From LOCAL_RANK, KINTSUGI_DEVICES, LOCAL_WORLD_SIZE and WORLD_SIZE; what is missing keeps its default.
  static DevicePlace FromEnvironment();
  bool SharesDevice() const { return devices > 0 && local_ranks > devices; }
};

class DeviceSession {
 public:
  // Variables that the user has set stay as they are. Ranks that share a device get a host id of their own each: NCCL
  // refuses two ranks with the same host and bus id.
  static void PrepareEnvironment(const DevicePlace& place);
  static Result<std::unique_ptr<DeviceSession>> Open(const DevicePlace& place, const CodeFactory& code);

  // Zeroed, until the session ends.
  Result<float*> AllocateState(size_t count);

  const std::shared_ptr<CudaDevice>& device() const { return stream_->device_pointer(); }
  const std::shared_ptr<const NcclApi>& nccl() const { return nccl_; }
  // How the agent reaches the state, and what stands behind an update.
  const std::shared_ptr<CudaMemory>& memory() const { return memory_; }
  CudaFence& fence() { return *fence_; }
  DeviceCompute& compute() { return *compute_; }

 private:
  DeviceSession() = default;

  std::shared_ptr<const NcclApi> nccl_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<DeviceCompute> compute_;
  std::shared_ptr<CudaMemory> memory_;
  std::unique_ptr<CudaFence> fence_;
  std::vector<ComputeArray<float>> state_;
};

}  // namespace kintsugi::byte_lm::device
