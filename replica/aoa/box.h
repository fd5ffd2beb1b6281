// Box: per axis a half-open interval of element numbers, row-major, in global coordinates. The geometry that this folder
// stands on, and no more.
//
// Units: elements. A 0-d box has no intervals, holds one element and meets every other 0-d box.
// Invariants: 0 <= begin <= end for every interval that the engine holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"

namespace kintsugi::aoa {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

using Box = std::vector<Interval>;

KINTSUGI_EXPORT Box WholeBox(const Shape& shape);
// Elements of the box. REQUIRES: its shape's volume fits (CheckShape).
KINTSUGI_EXPORT int64_t Volume(const Box& box);
// The common part of two boxes of equal dimension count; false when it holds no element.
KINTSUGI_EXPORT bool Intersect(const Box& a, const Box& b, Box* common);
// False when a length is negative or the product of the lengths that are not 0 does not fit into int64_t.
KINTSUGI_EXPORT bool IsRepresentable(const Shape& shape);
// "[0:2, 4:8]".
KINTSUGI_EXPORT std::string DescribeBox(const Box& box);
// Comma and space between numbers: "[1, 0]".
KINTSUGI_EXPORT std::string DescribeList(const std::vector<int64_t>& list);

}  // namespace kintsugi::aoa
