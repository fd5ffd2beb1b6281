// Copies of N-d regions of host memory: pack, unpack, and any strided copy.
//
// What: a region is `axes` lengths; where an element lies is said by one stride for each axis, in bytes, of either
// sign. Row-major tensors, parts of them, permuted views and flat memory are all such maps. Axes that are contiguous in
// both memories are copied as one; the order in which elements are copied is not the caller's business.
// Units: lengths in elements, strides and sizes in bytes. A region of no axes is one element; one with a length of 0 is
// none. Nothing but the region's elements is written. Addresses are those of the element with all coordinates 0.
// REQUIRES: 0 <= axes <= kRegionAxesMax, lengths >= 0, elements of 1, 2, 4, 8 or 16 bytes; destination elements are
// distinct and share no byte with the source. No alignment is needed.
// Threads: pure; all stores are visible to other threads, in order, when a call returns.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/export.h"

namespace kintsugi {

inline constexpr int kRegionAxesMax = 8;

using RegionAxes = std::array<int64_t, kRegionAxesMax>;

// A region in one strided memory.
struct Region {
  int axes = 0;
  RegionAxes length{};
  RegionAxes stride{};
};

// A region in two.
struct RegionPair {
  int axes = 0;
  RegionAxes length{};
  RegionAxes to_stride{};
  RegionAxes from_stride{};
};

// Strides of a dense row-major array.
KINTSUGI_EXPORT RegionAxes DenseStrides(int axes, const RegionAxes& length, uint64_t element_bytes);

// The same region in fewer axes: those of length 1 left out, the order by descending destination stride, neighbours
// that are contiguous in both memories joined. A region of no elements becomes one axis of length 0.
KINTSUGI_EXPORT RegionPair Coalesce(const RegionPair& region);

// The bytes of the region's elements, in row-major order of its axes, without gaps: from strided memory, and back.
KINTSUGI_EXPORT void PackRegion(void* to, const void* from, const Region& region, uint64_t element_bytes);
KINTSUGI_EXPORT void UnpackRegion(void* to, const void* from, const Region& region, uint64_t element_bytes);

KINTSUGI_EXPORT void CopyRegion(void* to, const void* from, const RegionPair& region, uint64_t element_bytes);

}  // namespace kintsugi
