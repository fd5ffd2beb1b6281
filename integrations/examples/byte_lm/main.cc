// byte_lm: a byte-level GPT that trains on real text under Kintsugi. Start it with `kintsugi run`.
#include "integrations/examples/byte_lm/command.h"

int main(int argc, char** argv) {
  return kintsugi::byte_lm::RunCommand(argc, argv, kintsugi::byte_lm::device::MakeCudaCode);
}
