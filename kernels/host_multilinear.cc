#include "kernels/host_multilinear.h"

#include <algorithm>
#include <cstring>

#include "kernels/multilinear.h"

namespace kintsugi::internal {
namespace {

uint64_t Bytes(const uint8_t* data, uint64_t size_bytes, uint64_t offset) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < size_bytes; ++i) sum += MultilinearTerm(data[i], offset + i);
  return sum;
}

uint64_t Words(const uint8_t* data, uint64_t words, uint64_t first_word) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, data + 4 * i, sizeof(word));
    sum += uint64_t{word} * MultilinearFactor(first_word + i);
  }
  return sum;
}

#if defined(__x86_64__)
bool HaveAvx2() {
  static const bool have = __builtin_cpu_supports("avx2");
  return have;
}

// Processors before these slow down for a while after each wide instruction.
bool HaveAvx512() {
  static const bool have = __builtin_cpu_supports("avx512vbmi2");
  return have;
}
#endif

}  // namespace

uint64_t MultilinearSum(const void* data, uint64_t size_bytes, uint64_t offset) {
  auto* at = static_cast<const uint8_t*>(data);
  const uint64_t head = std::min(size_bytes, (4 - offset % 4) % 4);
  uint64_t sum = Bytes(at, head, offset);
  at += head, offset += head, size_bytes -= head;
#if defined(__x86_64__)
  if (const uint64_t rows = size_bytes / 64; rows > 0 && HaveAvx512()) {
    sum += MultilinearRowsAvx512(at, rows, offset / 4);
    at += rows * 64, offset += rows * 64, size_bytes -= rows * 64;
  }
  if (const uint64_t rows = size_bytes / 32; rows > 0 && HaveAvx2()) {
    sum += MultilinearRowsAvx2(at, rows, offset / 4);
    at += rows * 32, offset += rows * 32, size_bytes -= rows * 32;
  }
#endif
  const uint64_t words = size_bytes / 4;
  sum += Words(at, words, offset / 4);
  return sum + Bytes(at + words * 4, size_bytes % 4, offset + words * 4);
}

}  // namespace kintsugi::internal
