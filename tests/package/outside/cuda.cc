// Uses the kernels of the package. Without a device they say so, which is all that can be asked of them there.
#include <cstdio>

#include <kintsugi/kernels/cuda_kernels.h>
#include <kintsugi/replica/device/cuda_memory.h>

int main() {
  auto kernels = kintsugi::MakeCudaKernels(0);
  if (!kernels.ok()) {
    std::printf("no kernels: %s\n", kernels.status().ToString().c_str());
    return kernels.status().code() == kintsugi::StatusCode::kUnavailable ? 0 : 1;
  }
  const auto memory = kintsugi::CudaMemory::Open(0, std::move(kernels).value());
  return memory.ok() && (*memory)->CanSum() ? 0 : 1;
}
