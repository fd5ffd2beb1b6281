// The multilinear checksum over host memory. Internal to kernels.
#pragma once

#include <cstdint>

namespace kintsugi::internal {

// What `size_bytes` bytes add that begin at byte `offset` of their block; the length's own term is not in it.
uint64_t MultilinearSum(const void* data, uint64_t size_bytes, uint64_t offset);

#if defined(__x86_64__)
// Whole 32-byte rows from word `first_word` on.
uint64_t MultilinearRowsAvx2(const uint8_t* data, uint64_t rows, uint64_t first_word);
// The same of 64-byte rows.
uint64_t MultilinearRowsAvx512(const uint8_t* data, uint64_t rows, uint64_t first_word);
#endif

}  // namespace kintsugi::internal
