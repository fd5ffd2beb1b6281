// byte_lm whose `--device cuda` is the fake device (KINTSUGI_CUDA_LIBRARY and its like name it): what tests with real
// processes drive the trainer's device path with. No product option.
#include <cstdlib>

#include "integrations/examples/byte_lm/command.h"
#include "tests/support/fake_gpu/emulated_launcher.h"

int main(int argc, char** argv) {
  return kintsugi::byte_lm::RunCommand(argc, argv, [](int) {
    const char* library = std::getenv("KINTSUGI_CUDA_LIBRARY");
    return kintsugi::byte_lm::device::EmulatedLauncher::Make(library ? library : "");
  });
}
