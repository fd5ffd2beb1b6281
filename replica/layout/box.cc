#include "replica/layout/box.h"

#include "runtime/base/check.h"

namespace kintsugi::layout {

Box WholeBox(std::span<const int64_t> shape) {
  KINTSUGI_CHECK(shape.size() <= kAxesMax, "a box has at most " + std::to_string(kAxesMax) + " axes");
  Box box;
  box.axes = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), box.hi.begin());
  return box;
}

Box BoxAt(std::span<const int64_t> offset, std::span<const int64_t> shape) {
  KINTSUGI_CHECK(offset.size() == shape.size(), "offset and shape have equally many axes");
  Box box = WholeBox(shape);
  for (int axis = 0; axis < box.axes; ++axis) {
    box.lo[axis] = offset[axis];
    box.hi[axis] += offset[axis];
  }
  return box;
}

Box BoxFrom(const int64_t* coordinates, int axes) {
  KINTSUGI_CHECK(0 <= axes && axes <= kAxesMax, "a box has at most " + std::to_string(kAxesMax) + " axes");
  Box box;
  box.axes = axes;
  std::copy_n(coordinates, axes, box.lo.begin());
  std::copy_n(coordinates + axes, axes, box.hi.begin());
  return box;
}

std::optional<int64_t> Product(std::span<const int64_t> shape) {
  // An empty axis makes the tensor empty, however large the axes before it are.
  for (int64_t length : shape)
    if (length <= 0) return 0;
  int64_t product = 1;
  for (int64_t length : shape)
    if (__builtin_mul_overflow(product, length, &product)) return std::nullopt;
  return product;
}

std::optional<int64_t> Volume(const Box& box) {
  Point lengths{};
  for (int axis = 0; axis < box.axes; ++axis)
    if (__builtin_sub_overflow(box.hi[axis], box.lo[axis], &lengths[axis])) return std::nullopt;
  return Product({lengths.data(), static_cast<size_t>(box.axes)});
}

int64_t Ravel(const Box& box, const Point& point) {
  int64_t number = 0;
  for (int axis = 0; axis < box.axes; ++axis) number = number * box.length(axis) + (point[axis] - box.lo[axis]);
  return number;
}

Point Unravel(const Box& box, int64_t number) {
  Point point{};
  for (int axis = box.axes - 1; axis >= 0; --axis) {
    const int64_t length = box.length(axis);
    KINTSUGI_CHECK(length > 0, "an element that has a number is in a box that has elements");
    point[axis] = box.lo[axis] + number % length;
    number /= length;
  }
  return point;
}

std::string Describe(const Box& box) {
  std::string text = "[";
  for (int axis = 0; axis < box.axes; ++axis)
    text += (axis ? ", [" : "[") + std::to_string(box.lo[axis]) + ", " + std::to_string(box.hi[axis]) + ")";
  return text + "]";
}

}  // namespace kintsugi::layout
