// Destination: where the elements of a moved box are written, and as what.
//
// What: a strided map takes global coordinates of the plan to bytes of a memory: the element x of `map.box` lies at
// base + sum over axes of stride[axis] * (x[axis] - map.box.lo[axis]). A dense shard, a flat range, a part of a fused
// tensor and a permuted tensor are all such maps; so a permute costs nothing but the order of writing. The coordinates
// are those of the plan's boxes, whatever the tensor is called where it arrives.
// Casts: `casts` are the types that elements pass through after the stored one; the last is that of the memory. None:
// the memory has the stored type. Nothing is cast that was not asked for.
// Units: coordinates in elements, base and strides in bytes.
// Threads: plain data.
// Ownership: the memory is the caller's.
#pragma once

#include <array>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::reshard {

struct StridedMap {
  layout::Box box;   // the coordinates that it takes
  int64_t base = 0;  // of the element box.lo; below 0 where that element is none of the memory's (flat ranges)
  std::array<int64_t, layout::kAxesMax> stride{};

  int64_t OffsetOf(const layout::Point& at) const {
    int64_t offset = base;
    for (int axis = 0; axis < box.axes; ++axis) offset += stride[axis] * (at[axis] - box.lo[axis]);
    return offset;
  }
};

struct Destination {
  Memory memory;
  DType dtype = DType::kFloat32;  // of the memory
  StridedMap map;
  std::vector<DType> casts;
};

// One whole copy of what arrives of a target piece: parts whose boxes meet nowhere and together hold all of it.
using DestinationCopy = std::vector<Destination>;

// How a shard's memory holds a piece: row-major, of a flat range only that range. REQUIRES: a valid piece.
KINTSUGI_EXPORT StridedMap MapOf(const layout::PieceView& piece, uint64_t element_bytes);

// A target piece in memory that holds it as a shard: one part. `stored` is the source's type; another one is cast.
KINTSUGI_EXPORT Destination PlainDestination(const layout::PieceView& piece, DType dtype, DType stored,
                                             const Memory& memory);

}  // namespace kintsugi::reshard
