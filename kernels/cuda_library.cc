// What libkintsugi_cuda.so shows.
#include "kernels/byte_kernels.h"
#include "kernels/cuda_kernels.h"
#include "kernels/device_kernels.h"

extern "C" __attribute__((visibility("default"))) void KINTSUGI_DEVICE_KERNELS_SYMBOL(
    int device, kintsugi::Result<std::shared_ptr<const kintsugi::ByteKernels>>* kernels) {
  *kernels = kintsugi::MakeCudaKernels(device);
}
