// Exact cover: do boxes cover a whole box once, element by element? And if not, where not?
//
// What: the indicator functions of the boxes must add up to that of the whole. Both sides are compared by their
// differences along every axis: a box is, up to signs, its 2^n corners, and two functions are equal exactly when all
// their signed corners cancel. Corners are made one axis at a time, sorted, and equal ones cancelled, which prunes on
// all axes at once: faces that two boxes share are gone before the next axis doubles them. Where something is left,
// the row-major first corner left is the row-major first element that is covered more or less than once: before it
// all corners cancelled.
// Cost: a boxes' sort per cut axis, at most 2^a * n rows for n boxes and a axes that some box cuts: n log n in any
// fixed number of axes, for grids and irregular tilings alike. Boxes in the order of a uniform grid take one pass and
// no memory.
// Units: elements.
// Threads: pure functions.
// Source of the rule: summed-area tables (Crow 1984) read backwards; for two axes the "perfect rectangle" criterion.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/layout/box.h"

namespace kintsugi::layout {

// Boxes of one tensor, as flat numbers: for each all lo, then all hi.
struct BoxList {
  int axes = 0;
  std::vector<int64_t> coordinates;
  size_t count = 0;

  KINTSUGI_EXPORT void Add(const int64_t* lo_and_hi);
  KINTSUGI_EXPORT void Add(const Box& box);
  const int64_t* operator[](size_t i) const { return coordinates.data() + i * 2 * static_cast<size_t>(axes); }
};

// What a check has done, for tests of its growth.
struct CoverCost {
  uint64_t rows = 0;         // corners and half-made corners
  uint64_t comparisons = 0;  // of rows, and of boxes with grid cells
};

struct Miscover {
  Point at{};         // the row-major first element that is not covered once
  int64_t times = 0;  // how often it is covered
};

// Nothing when every element of `whole` is covered once. REQUIRES: no box is empty, each lies within `whole`, which has
// at most 2^63 - 1 elements.
KINTSUGI_EXPORT std::optional<Miscover> FindMiscover(const Box& whole, const BoxList& boxes, CoverCost* cost = nullptr);

// The hole that begins at `at`, an element no box covers: grown along the last axis first, as far as it stays
// uncovered.
KINTSUGI_EXPORT Box HoleAt(const Box& whole, const BoxList& boxes, const Point& at);

}  // namespace kintsugi::layout
