// Flat ranges: half-open ranges of element numbers in the row-major order of a box, as ZeRO-1 and Paddle's sharding
// stage 1 cut a flattened parameter.
//
// A flat range becomes boxes in two ways:
//   exactly    partial start, full middle, partial end, axis by axis: at most 2n - 1 disjoint boxes for n axes (one
//              for a scalar), in row-major order. Each is one contiguous run of the flat range, and they follow one
//              another, so the memory of the k-th begins where that of the k-1st ends.
//   minimally  the smallest box around the range that is itself one contiguous run of the whole; the range is then a
//              range of that box.
// Units: elements. Boxes come out in the coordinates of the box that went in.
// Threads: pure functions; nothing allocates.
// REQUIRES everywhere: 0 <= start <= stop <= volume of the box, which fits 63 bits.
#pragma once

#include "callbacks/state/descriptors.h"
#include "replica/layout/box.h"

namespace kintsugi::layout {

inline constexpr int kFlatBoxesMax = 2 * kAxesMax - 1;

struct FlatBoxes {
  int count = 0;
  std::array<Box, kFlatBoxesMax> boxes;

  const Box* begin() const { return boxes.data(); }
  const Box* end() const { return boxes.data() + count; }
};

// The exact decomposition; no box for an empty range.
KINTSUGI_EXPORT FlatBoxes BoxesOf(const Box& box, FlatRange range);

struct MinimalBox {
  Box box;
  FlatRange relative;  // the range, counted within `box`
};

// Axes on which the first and the last element agree are one thin, the first on which they differ is cut from one to
// the other, all later ones are whole. An empty range gives an empty box.
KINTSUGI_EXPORT MinimalBox MinimalBoxOf(const Box& box, FlatRange range);

}  // namespace kintsugi::layout
