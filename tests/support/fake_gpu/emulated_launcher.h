// A launcher that runs the bodies of byte_lm's kernels on the CPU, in the order of a stream of the fake device: every
// thread of a phase before the next phase, blocks and threads backwards. It shows that bodies, shapes and their order
// are right without a device; nothing about launches, memory order or speed.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "integrations/examples/byte_lm/device/kernel_launcher.h"

namespace kintsugi::byte_lm::device {

template <typename Work>
void RunEmulated(const Work& work) {
  auto shared = std::make_unique<typename Work::Shared>();
  for (uint64_t block = work.Blocks(); block-- > 0;)
    for (uint32_t phase = 0; phase < Work::kPhases; ++phase)
      for (uint32_t thread = kBlockThreads; thread-- > 0;) work.Run(phase, block, thread, *shared);
}

class EmulatedLauncher final : public KernelLauncher {
 public:
  // `library`: the fake libcuda whose streams run the work.
  static Result<DeviceCode> Make(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW);
    auto* const run = handle ? reinterpret_cast<Run>(dlsym(handle, "fakeStreamRun")) : nullptr;
    if (!run) return Status(StatusCode::kNotFound, "'" + library + "' is no fake libcuda");
    return DeviceCode{std::shared_ptr<const KernelLauncher>(new EmulatedLauncher(run)), nullptr};
  }

  Status Launch(const Kernel& kernel, void* stream) const override {
    run_(
        stream,
        [](void* argument) {
          const std::unique_ptr<Kernel> owned(static_cast<Kernel*>(argument));
          std::visit([](const auto& work) { RunEmulated(work); }, *owned);
        },
        new Kernel(kernel));
    return Status::Ok();
  }

 private:
  using Run = void (*)(void* stream, void (*work)(void*), void* argument);
  explicit EmulatedLauncher(Run run) : run_(run) {}
  const Run run_;
};

}  // namespace kintsugi::byte_lm::device
