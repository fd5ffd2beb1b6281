#include "kernels/placed_sum.h"

#include <algorithm>

#include "kernels/host_multilinear.h"

namespace kintsugi {

uint64_t PlacedSum(const void* data, uint64_t size_bytes, uint64_t offset) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t sum = 0;
  while (size_bytes > 0) {
    const uint64_t within = offset % kPlacedStretchBytes, size = std::min(size_bytes, kPlacedStretchBytes - within);
    sum += internal::MultilinearSum(at, size, within) * internal::PlacedFactor(offset / kPlacedStretchBytes);
    at += size, offset += size, size_bytes -= size;
  }
  return sum;
}

}  // namespace kintsugi
