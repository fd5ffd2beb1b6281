#include "replica/layout/flat_range.h"

#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

// The first axis on which two elements differ; the number of axes where they are the same element.
int FirstDifference(const Box& box, const Point& a, const Point& b) {
  int axis = 0;
  while (axis < box.axes && a[axis] == b[axis]) ++axis;
  return axis;
}

// `box` with the axes before `axis` fixed at `at`, and `axis` itself cut to [lo, hi).
Box Cut(const Box& box, const Point& at, int axis, int64_t lo, int64_t hi) {
  KINTSUGI_CHECK(0 <= axis && axis <= box.axes, "a box is cut along one of its axes, or is one element");
  Box cut = box;
  for (int before = 0; before < axis; ++before) {
    cut.lo[before] = at[before];
    cut.hi[before] = at[before] + 1;
  }
  if (axis < box.axes) {
    cut.lo[axis] = lo;
    cut.hi[axis] = hi;
  }
  return cut;
}

}  // namespace

FlatBoxes BoxesOf(const Box& box, FlatRange range) {
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop, "a flat range starts at or before its stop");
  FlatBoxes result;
  if (range.start == range.stop) return result;
  const auto emit = [&](const Point& at, int axis, int64_t lo, int64_t hi) {
    KINTSUGI_CHECK(result.count < kFlatBoxesMax, "a flat range is so few boxes");
    if (lo < hi || axis == box.axes) result.boxes[result.count++] = Cut(box, at, axis, lo, hi);
  };
  const Point first = Unravel(box, range.start), last = Unravel(box, range.stop - 1);
  const int split = FirstDifference(box, first, last);
  if (split == box.axes) {
    emit(first, split, 0, 0);
    return result;
  }
  // From the innermost axis outwards, a start or end is whole as long as it touches the box's edge: it belongs to the
  // next axis' piece then.
  int whole_start = box.axes, whole_end = box.axes;
  while (whole_start > split + 1 && first[whole_start - 1] == box.lo[whole_start - 1]) --whole_start;
  while (whole_end > split + 1 && last[whole_end - 1] == box.hi[whole_end - 1] - 1) --whole_end;
  // Axes before whole_start are where the start is cut; the innermost of them takes its element whole.
  for (int axis = whole_start - 1; axis > split; --axis)
    emit(first, axis, first[axis] + (axis + 1 < whole_start ? 1 : 0), box.hi[axis]);
  emit(first, split, first[split] + (whole_start > split + 1 ? 1 : 0), last[split] + (whole_end > split + 1 ? 0 : 1));
  for (int axis = split + 1; axis < whole_end; ++axis)
    emit(last, axis, box.lo[axis], last[axis] + (axis + 1 < whole_end ? 0 : 1));
  return result;
}

MinimalBox MinimalBoxOf(const Box& box, FlatRange range) {
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop, "a flat range starts at or before its stop");
  if (range.start == range.stop) {
    MinimalBox empty{box, {0, 0}};
    empty.box.hi = empty.box.lo;
    return empty;
  }
  const Point first = Unravel(box, range.start), last = Unravel(box, range.stop - 1);
  const int split = FirstDifference(box, first, last);
  MinimalBox result;
  result.box = split == box.axes ? Cut(box, first, split, 0, 0) : Cut(box, first, split, first[split], last[split] + 1);
  const int64_t base = Ravel(box, result.box.lo);
  result.relative = {range.start - base, range.stop - base};
  return result;
}

}  // namespace kintsugi::layout
