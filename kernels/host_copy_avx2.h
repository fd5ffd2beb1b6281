// The AVX2 tile of host_copy.cc. Internal to kernels.
#pragma once

#include <cstdint>

namespace kintsugi::internal {

inline constexpr uint64_t kCopyTileBytes = 16384;

// Copies one tile with non-temporal stores while the tile at `next` is fetched. REQUIRES: `to` aligned to 64 bytes.
void CopyTileAvx2(uint8_t* to, const uint8_t* from, const uint8_t* next);
// Makes the stores of all tiles visible in order.
void CopyFenceAvx2();

}  // namespace kintsugi::internal
