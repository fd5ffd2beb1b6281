// The AVX2 tiles of host_copy_way.cc. Internal to kernels.
#pragma once

#include <cstdint>

namespace kintsugi::internal {

inline constexpr uint64_t kCopyTileBytes = 16384;

using CopyTile = void (*)(uint8_t* to, const uint8_t* from, const uint8_t* next);

// Copies one tile with non-temporal stores, in so many streams side by side (1, 2, 4), while the tile at `next` is fetched. REQUIRES: `to` aligned
// to 64 bytes.
template <int streams>
void CopyTileAvx2(uint8_t* to, const uint8_t* from, const uint8_t* next);
// Makes the stores of all tiles visible in order.
void CopyFenceAvx2();

}  // namespace kintsugi::internal
