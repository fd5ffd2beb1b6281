// IndexBox: per axis a half-open interval of element numbers, row-major, in global coordinates. The geometry that this
// folder stands on, and no more.
//
// Units: elements. A 0-d box has no intervals, holds one element and meets every other 0-d box.
// Invariants: 0 <= begin <= end for every interval that the engine holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
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

// A sequence of intervals with the usual members. Boxes are copied by the hundred thousand, so those of up to four axes
// need no allocation.
class IndexBox {
 public:
  IndexBox() = default;
  explicit IndexBox(size_t axes) { resize(axes); }
  IndexBox(std::initializer_list<Interval> intervals) {
    std::copy(intervals.begin(), intervals.end(), Sized(intervals.size()));
  }

  size_t size() const { return size_; }
  Interval* begin() { return size_ <= kNear ? near_.data() : far_.data(); }
  Interval* end() { return begin() + size_; }
  const Interval* begin() const { return const_cast<IndexBox*>(this)->begin(); }
  const Interval* end() const { return begin() + size_; }
  Interval& operator[](size_t axis) { return begin()[axis]; }
  const Interval& operator[](size_t axis) const { return begin()[axis]; }

  // New intervals are [0, 0).
  void resize(size_t axes) {
    const IndexBox old = *this;
    std::fill_n(std::copy_n(old.begin(), std::min(axes, old.size_), Sized(axes)), axes - std::min(axes, old.size_),
                Interval{});
  }
  void assign(size_t axes, Interval interval) { std::fill_n(Sized(axes), axes, interval); }
  void push_back(Interval interval) {
    resize(size_ + 1);
    end()[-1] = interval;
  }
  bool operator==(const IndexBox& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  static constexpr size_t kNear = 4;
  // Takes this size, with unspecified intervals; where they begin.
  Interval* Sized(size_t axes) {
    size_ = axes;
    if (axes > kNear) far_.resize(axes);
    return begin();
  }

  size_t size_ = 0;
  std::array<Interval, kNear> near_;
  std::vector<Interval> far_;  // all of them, when there are more than kNear
};

KINTSUGI_EXPORT IndexBox WholeBox(const Shape& shape);
// Elements of the box. REQUIRES: its shape's volume fits (CheckShape).
KINTSUGI_EXPORT int64_t Volume(const IndexBox& box);
// The common part of two boxes of equal dimension count; false when it holds no element.
KINTSUGI_EXPORT bool Intersect(const IndexBox& a, const IndexBox& b, IndexBox* common);
// False when a length is negative or the product of the lengths that are not 0 does not fit into int64_t.
KINTSUGI_EXPORT bool IsRepresentable(const Shape& shape);
// "[0:2, 4:8]".
KINTSUGI_EXPORT std::string DescribeBox(const IndexBox& box);

}  // namespace kintsugi::aoa
