// What the device kernels share: grids, launch errors, reductions within a block. Internal to kernels; compiled by
// nvcc.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/table_kernels.h"

namespace kintsugi::internal {

// Blocks that a device holds at once at kTileThreads threads each; more than that wait, so grids stop here.
inline constexpr uint32_t kBlocksPerProcessor = 2048 / kTileThreads;

inline Status CudaStatus(cudaError_t error, const char* place) {
  if (error == cudaSuccess) return Status::Ok();
  return {StatusCode::kInternal, std::string(place) + ": " + cudaGetErrorName(error) + " (" +
                                     std::to_string(static_cast<int>(error)) + "), " + cudaGetErrorString(error)};
}

// Makes `device` current for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) error_ = cudaSetDevice(device);
    device_ = device;
  }
  ~DeviceScope() {
    if (before_ != device_) static_cast<void>(cudaSetDevice(before_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0, device_ = 0;
  cudaError_t error_ = cudaSuccess;
};

struct Grid {
  int device = 0;
  uint32_t blocks_max = 1;

  uint32_t BlocksFor(uint64_t tiles) const {
    return static_cast<uint32_t>(std::max<uint64_t>(1, std::min<uint64_t>(tiles, blocks_max)));
  }

  // Calls launch(blocks) with the device current and gives the launch's own error. Errors that older work left behind
  // are not taken for it: cudaPeekAtLastError would show these, so the sticky ones are reported before the launch.
  template <typename Launch>
  Status Run(const char* place, uint64_t tiles, const Launch& launch) const {
    const DeviceScope scope(device);
    KINTSUGI_RETURN_IF_ERROR(CudaStatus(scope.error(), place));
    static_cast<void>(cudaGetLastError());
    launch(BlocksFor(tiles));
    return CudaStatus(cudaGetLastError(), place);
  }
};

inline cudaStream_t StreamOf(KernelStream stream) { return static_cast<cudaStream_t>(stream.handle); }

#if defined(__CUDACC__)

// The sum over the block's threads, in thread 0. REQUIRES: all kTileThreads threads call it.
__device__ inline unsigned long long BlockSum(unsigned long long value) {
  __shared__ unsigned long long warp_sum[kTileThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xFFFFFFFFu, value, step);
  __syncthreads();  // the last use of warp_sum is over
  if (threadIdx.x % 32 == 0) warp_sum[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  value = threadIdx.x < kTileThreads / 32 ? warp_sum[threadIdx.x] : 0;
  for (int step = kTileThreads / 64; step > 0; step /= 2) value += __shfl_down_sync(0xFFFFFFFFu, value, step);
  return value;
}

__device__ inline unsigned long long* Atomic(uint64_t* at) { return reinterpret_cast<unsigned long long*>(at); }
static_assert(sizeof(unsigned long long) == sizeof(uint64_t));

#endif

// The launches that cuda_cast.cu has; a file of its own, since it holds forty kernels.
Status LaunchCast(const Grid& grid, ElementType to, ElementType from, const MoveTable<FlatMove>& table,
                  KernelStream stream);
Status LaunchCast(const Grid& grid, ElementType to, ElementType from, const MoveTable<DeepMove>& table,
                  KernelStream stream);

}  // namespace kintsugi::internal
