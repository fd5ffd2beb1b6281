// Bytes of a training that never was, for tests: like no other tensor's, and a master weight ("zero.NAME.fp32") is what its
// module's bfloat16 ("module.NAME") is rounded from, as readers of DeepSpeed's checkpoints ask for.
#pragma once

#include <string>

#include "callbacks/state/dtype.h"

namespace kintsugi::formats {

inline std::string MadeUpBytes(const std::string& key, DType dtype, uint64_t elements) {
  const bool is_master = key.starts_with("zero.") && key.ends_with(".fp32") && dtype == DType::kFloat32;
  const bool is_module = key.starts_with("module.") && dtype == DType::kBFloat16;
  const std::string name = is_master ? "module." + key.substr(5, key.size() - 10) : key;
  uint64_t state = 1469598103934665603u;
  for (const char letter : name) state = (state ^ static_cast<uint8_t>(letter)) * 1099511628211u;
  std::string bytes;
  for (uint64_t i = 0; i < elements; ++i) {
    state = (state + i) * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<uint16_t>(state >> 40);
    if (is_master || is_module) {
      const auto half = static_cast<uint16_t>(0x3f80 | (random & 0x807f));  // one or more, less than two, either sign
      if (is_master) bytes += std::string(2, '\0');
      bytes += {static_cast<char>(half), static_cast<char>(half >> 8)};
    } else {
      for (uint64_t byte = 0; byte < DTypeSize(dtype); ++byte) bytes += static_cast<char>(random * (byte + 1) >> 3);
    }
  }
  return bytes;
}

}  // namespace kintsugi::formats
