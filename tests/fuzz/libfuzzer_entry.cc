// libFuzzer's side of a target. `fuzz_NAME --seeds DIR` writes the target's seeds and ends; all else is libFuzzer's
// own.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "--seeds") return 0;
  const std::filesystem::path folder = (*argv)[2];
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : kintsugi::fuzz::Seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file << seed;
    if (!file.flush()) {
      std::cerr << "cannot write to " << folder << "\n";
      std::exit(1);
    }
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kintsugi::fuzz::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}
