// Numbers in the bytes of objects: little-endian, whatever the machine.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi::byte_lm {

inline void AppendLittleEndian(uint64_t value, std::vector<uint8_t>* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<uint8_t>(value >> shift));
}

inline uint64_t ReadLittleEndian(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace kintsugi::byte_lm
