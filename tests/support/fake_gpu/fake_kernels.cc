// A fake libkintsugi_cuda.so: the host's checksum kernel on a stream of the fake driver, which KINTSUGI_CUDA_LIBRARY names.
#include <cstdlib>

#include "kernels/device_kernels.h"
#include "tests/support/fake_gpu/stream_kernels.h"

namespace {

std::shared_ptr<const kintsugi::StreamKernels>& Kernels() {
  static auto* const kernels = new std::shared_ptr<const kintsugi::StreamKernels>;
  return *kernels;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void KINTSUGI_DEVICE_KERNELS_SYMBOL(
    int, kintsugi::Result<std::shared_ptr<const kintsugi::ByteKernels>>* kernels) {
  Kernels() = std::make_shared<kintsugi::StreamKernels>(std::getenv("KINTSUGI_CUDA_LIBRARY"));
  *kernels = std::shared_ptr<const kintsugi::ByteKernels>(Kernels());
}

// So many checksums were asked of the device: what a test looks at.
extern "C" __attribute__((visibility("default"))) int fakeKernelsChecksums() {
  return Kernels() ? Kernels()->checksums.load() : 0;
}
