// Plane: one axis is contiguous in the source, the other in the destination. Internal to kernels.
#pragma once

#include <cstdint>

namespace kintsugi::internal {

struct Plane {
  int64_t rows = 0;         // of the destination: elements that lie side by side in the source
  int64_t columns = 0;      // elements that lie side by side in the destination
  int64_t to_stride = 0;    // bytes from a row of the destination to the next
  int64_t from_stride = 0;  // bytes from what is a column of the destination to the next
};

// From this size on planes are worth it, whatever the rest of the region is.
inline constexpr int64_t kTransposeSide = 16;

// Elements of 2 or 4 bytes. `past_caches`: whole lines of the destination are; StreamFenceAvx2 comes last.
bool CanTranspose(uint64_t element_bytes, const Plane& plane);
void TransposePlaneAvx2(uint8_t* to, const uint8_t* from, const Plane& plane, uint64_t element_bytes,
                        bool past_caches);

}  // namespace kintsugi::internal
