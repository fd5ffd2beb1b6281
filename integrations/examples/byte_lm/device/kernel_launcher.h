// KernelLauncher: starts a kernel of byte_lm on a stream. MakeCudaCode's does it on a device; tests run the bodies
// on the CPU (tests/support/fake_gpu/emulated_launcher.h).
//
// Threads: any; the thread has the device's context.
// Errors: kInternal is an error of the launch; an error of the running kernel shows on the stream. A kernel without
// blocks is not launched.
#pragma once

#include <memory>
#include <variant>

#include "integrations/examples/byte_lm/device/element_kernels.h"
#include "integrations/examples/byte_lm/device/row_kernels.h"
#include "integrations/examples/byte_lm/device/sum_kernels.h"
#include "kernels/byte_kernels.h"
#include "runtime/base/result.h"

namespace kintsugi::byte_lm::device {

using Kernel =
    std::variant<FillKernel, CopyKernel, ScaleKernel, AddKernel, AddProductKernel, ProductKernel, NarrowKernel,
                 AddBiasKernel, GeluForwardKernel, GeluBackwardKernel, MaskKernel, EmbedForwardKernel,
                 TokenGradientKernel, PositionGradientKernel, AdamKernel, RankSumKernel, LayerNormForwardKernel,
                 LayerNormInputGradientKernel, CausalSoftmaxKernel, CausalSoftmaxGradientKernel, CrossEntropyKernel,
                 ColumnSumsKernel, SquaresKernel, SumKernel>;

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;
  virtual Status Launch(const Kernel& kernel, void* stream) const = 0;
};

// What a program brings for its devices.
struct DeviceCode {
  std::shared_ptr<const KernelLauncher> launcher;
  std::shared_ptr<const ByteKernels> state_kernels;  // checksums of state on the device; null: on the host
};

// kFailedPrecondition where the program was built without the CUDA Toolkit. kUnavailable where the runtime finds no
// such device or cannot run this build's code on it.
Result<DeviceCode> MakeCudaCode(int ordinal);

}  // namespace kintsugi::byte_lm::device
