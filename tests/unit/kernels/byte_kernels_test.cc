// The contract suite on the CPU: the host's kernels, and the device's kernel bodies run thread by thread.
#include "tests/unit/kernels/byte_kernels_contract.h"
#include "tests/unit/kernels/emulated_launcher.h"

namespace kintsugi {
namespace {

std::unique_ptr<KernelMemory> OnHost() { return std::make_unique<HostKernelMemory>(HostKernels()); }

std::unique_ptr<KernelMemory> Emulated() {
  static const internal::TableKernels kernels(std::make_unique<internal::EmulatedLauncher>());
  return std::make_unique<HostKernelMemory>(kernels);
}

INSTANTIATE_TEST_SUITE_P(Cpu, ByteKernelsContract,
                         testing::Values(KernelCase{"host", OnHost}, KernelCase{"emulated", Emulated}), KernelCaseName);

}  // namespace
}  // namespace kintsugi
