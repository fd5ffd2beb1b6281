// The contract suite on a CUDA device. Without one every test is skipped and says why.
#include <cuda_runtime.h>

#include "kernels/cuda_kernels.h"
#include "tests/unit/kernels/byte_kernels_contract.h"

namespace kintsugi {
namespace {

class CudaKernelMemory final : public KernelMemory {
 public:
  CudaKernelMemory() : kernels_(MakeCudaKernels(0)) {
    if (kernels_.ok()) Need(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaKernelMemory() override {
    for (void* block : blocks_) Need(cudaFree(block));
    if (stream_) Need(cudaStreamDestroy(stream_));
  }

  std::string unavailable() const override { return kernels_.ok() ? "" : kernels_.status().ToString(); }
  const ByteKernels& kernels() const override { return **kernels_; }
  KernelStream stream() const override { return {stream_}; }

  uint8_t* Allocate(size_t size_bytes) override {
    void* block = nullptr;
    Need(cudaMalloc(&block, size_bytes + 256));
    blocks_.push_back(block);
    Need(cudaMemsetAsync(block, 0xAA, size_bytes + 256, stream_));
    Need(cudaStreamSynchronize(stream_));
    return static_cast<uint8_t*>(block);
  }
  void Upload(void* to, const void* from, size_t size_bytes) override {
    Need(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, stream_));
    Need(cudaStreamSynchronize(stream_));
  }
  void Download(void* to, const void* from, size_t size_bytes) override {
    Need(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, stream_));
    Need(cudaStreamSynchronize(stream_));
  }

 private:
  static void Need(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

  const Result<std::shared_ptr<const ByteKernels>> kernels_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> blocks_;
};

INSTANTIATE_TEST_SUITE_P(Device, ByteKernelsContract,
                         testing::Values(KernelCase{"cuda", [] { return std::make_unique<CudaKernelMemory>(); }}),
                         KernelCaseName);

TEST(CudaKernels, RefusesADeviceThatIsNotThere) {
  const auto devices = CudaDevices();
  const auto kernels = MakeCudaKernels(devices.ok() ? *devices : 0);
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kintsugi
