// The launcher on a CUDA device: each kernel's phases with barriers between them.
#include <cuda_runtime.h>

#include <string>

#include "integrations/examples/byte_lm/device/kernel_launcher.h"
#include "kernels/cuda_kernels.h"

namespace kintsugi::byte_lm::device {
namespace {

template <typename Work>
__global__ void __launch_bounds__(kBlockThreads) RunKernel(const __grid_constant__ Work work) {
  __shared__ typename Work::Shared shared;
#pragma unroll
  for (uint32_t phase = 0; phase < Work::kPhases; ++phase) {
    if (phase > 0) __syncthreads();
    work.Run(phase, blockIdx.x, threadIdx.x, shared);
  }
}

Status CudaStatus(StatusCode code, cudaError_t error, const char* place) {
  if (error == cudaSuccess) return Status::Ok();
  return {code, std::string(place) + ": " + cudaGetErrorName(error) + " (" + std::to_string(static_cast<int>(error)) +
                    "), " + cudaGetErrorString(error)};
}

class CudaLauncher final : public KernelLauncher {
 public:
  explicit CudaLauncher(int ordinal) : ordinal_(ordinal) {}

  Status Launch(const Kernel& kernel, void* stream) const override {
    KINTSUGI_RETURN_IF_ERROR(CudaStatus(StatusCode::kInternal, cudaSetDevice(ordinal_), "before a launch"));
    static_cast<void>(cudaGetLastError());  // an older error is not this launch's; a sticky one comes again
    std::visit(
        [stream](const auto& work) {
          const uint64_t blocks = work.Blocks();
          if (blocks == 0) return;
          RunKernel<<<static_cast<uint32_t>(blocks), kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>(work);
        },
        kernel);
    return CudaStatus(StatusCode::kInternal, cudaGetLastError(), "launch of a kernel of byte_lm");
  }

 private:
  const int ordinal_;
};

}  // namespace

Result<DeviceCode> MakeCudaCode(int ordinal) {
  KINTSUGI_RETURN_IF_ERROR(CudaStatus(StatusCode::kUnavailable, cudaSetDevice(ordinal), "cudaSetDevice"));
  // Whether this build has code for the device, said now and not in the first step.
  cudaFuncAttributes attributes{};
  KINTSUGI_RETURN_IF_ERROR(CudaStatus(StatusCode::kUnavailable,
                                      cudaFuncGetAttributes(&attributes, RunKernel<FillKernel>),
                                      "byte_lm's kernels on this device"));
  KINTSUGI_ASSIGN_OR_RETURN(std::shared_ptr<const ByteKernels> state_kernels, MakeCudaKernels(ordinal));
  return DeviceCode{std::make_shared<CudaLauncher>(ordinal), std::move(state_kernels)};
}

}  // namespace kintsugi::byte_lm::device
