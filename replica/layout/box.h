// Box: a rectangular region of a global tensor, and row-major arithmetic in it.
//
// What: per axis a half-open interval [lo, hi) in global coordinates, at most kAxesMax axes. A box of no axes is a
// scalar and has one element. A fixed-size value: nothing here allocates, so that a planner can keep millions.
// Units: elements. Volumes fit 63 bits or are reported as nothing.
// Threads: pure functions.
// Source of the rule: row-major order as in C arrays and numpy's ravel_multi_index.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/export.h"

namespace kintsugi::layout {

inline constexpr int kAxesMax = 8;

// Coordinates of one element; entries past the last axis are 0.
using Point = std::array<int64_t, kAxesMax>;

struct Box {
  int axes = 0;
  Point lo{};
  Point hi{};

  int64_t length(int axis) const { return hi[axis] - lo[axis]; }
  bool operator==(const Box&) const = default;
};

// The box of a whole tensor; of a piece at `offset`. REQUIRES: at most kAxesMax axes, equally many in both.
KINTSUGI_EXPORT Box WholeBox(std::span<const int64_t> shape);
KINTSUGI_EXPORT Box BoxAt(std::span<const int64_t> offset, std::span<const int64_t> shape);
// From coordinates as metadata keeps them: all lo, then all hi.
KINTSUGI_EXPORT Box BoxFrom(const int64_t* coordinates, int axes);

// No element: some axis is not longer than 0.
inline bool IsEmpty(const Box& box) {
  for (int axis = 0; axis < box.axes; ++axis)
    if (box.hi[axis] <= box.lo[axis]) return true;
  return false;
}

// Number of elements: 0 when empty, nothing when 63 bits cannot count them.
KINTSUGI_EXPORT std::optional<int64_t> Volume(const Box& box);
KINTSUGI_EXPORT std::optional<int64_t> Product(std::span<const int64_t> shape);

// Per axis [max(lo), min(hi)); empty when the boxes do not meet. REQUIRES: equally many axes.
inline Box Intersect(const Box& a, const Box& b) {
  Box both;
  both.axes = a.axes;
  for (int axis = 0; axis < a.axes; ++axis) {
    both.lo[axis] = std::max(a.lo[axis], b.lo[axis]);
    both.hi[axis] = std::max(both.lo[axis], std::min(a.hi[axis], b.hi[axis]));
  }
  return both;
}

inline bool Contains(const Box& box, const Point& point) {
  for (int axis = 0; axis < box.axes; ++axis)
    if (point[axis] < box.lo[axis] || point[axis] >= box.hi[axis]) return false;
  return true;
}

// Every interval of `inner` lies within that of `outer`; an empty `inner` must lie there too.
inline bool Contains(const Box& outer, const Box& inner) {
  for (int axis = 0; axis < outer.axes; ++axis)
    if (inner.lo[axis] < outer.lo[axis] || inner.hi[axis] > outer.hi[axis]) return false;
  return true;
}

// Row-major number of an element within a box, and back. REQUIRES: the point is in the box, the volume fits 63 bits.
KINTSUGI_EXPORT int64_t Ravel(const Box& box, const Point& point);
KINTSUGI_EXPORT Point Unravel(const Box& box, int64_t number);

// "[[0, 3), [4, 8)]"; "[]" for a scalar.
KINTSUGI_EXPORT std::string Describe(const Box& box);

}  // namespace kintsugi::layout
