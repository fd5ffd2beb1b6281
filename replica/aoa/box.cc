#include "replica/aoa/box.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::aoa {

IndexBox WholeBox(const Shape& shape) {
  IndexBox box(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) box[axis].end = shape[axis];
  return box;
}

int64_t Volume(const IndexBox& box) {
  int64_t volume = 1;
  for (const Interval& interval : box) volume *= interval.length();
  return volume;
}

bool Intersect(const IndexBox& a, const IndexBox& b, IndexBox* common) {
  KINTSUGI_CHECK(a.size() == b.size(), "boxes that meet have equally many axes");
  if (common->size() != a.size()) common->resize(a.size());
  for (size_t axis = 0; axis < a.size(); ++axis) {
    const Interval shared{std::max(a[axis].begin, b[axis].begin), std::min(a[axis].end, b[axis].end)};
    if (shared.begin >= shared.end) return false;
    (*common)[axis] = shared;
  }
  return true;
}

bool IsRepresentable(const Shape& shape) {
  int64_t volume = 1;
  for (const int64_t length : shape) {
    if (length < 0) return false;
    if (length > 0 && __builtin_mul_overflow(volume, length, &volume)) return false;
  }
  return true;
}

std::string DescribeBox(const IndexBox& box) {
  std::string text = "[";
  for (size_t axis = 0; axis < box.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(box[axis].begin) + ":" + std::to_string(box[axis].end);
  }
  return text + "]";
}

}  // namespace kintsugi::aoa
