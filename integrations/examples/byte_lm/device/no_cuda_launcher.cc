// In place of cuda_launcher.cu where the program is built without the CUDA Toolkit.
#include "integrations/examples/byte_lm/device/kernel_launcher.h"

namespace kintsugi::byte_lm::device {

Result<DeviceCode> MakeCudaCode(int) {
  return Status(StatusCode::kFailedPrecondition,
                "this byte_lm was built without CUDA kernels; build it where nvcc is (cmake --preset cuda)");
}

}  // namespace kintsugi::byte_lm::device
