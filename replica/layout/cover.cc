#include "replica/layout/cover.h"

#include <algorithm>
#include <limits>

#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

// A product of points (axes done) and intervals (axes to do), with its sign and multiplicity. Only cut axes are in it.
// The upper end of an axis that is done is 0.
template <typename Number, int kAxes>
struct Row {
  std::array<Number, 2 * kAxes> ends;  // lo and hi of each axis
  int64_t weight;
};

// Cancels corners over `kAxes` cut axes.
template <typename Number, int kAxes>
class Canceller {
 public:
  Canceller(const Box& whole, const std::array<int, kAxesMax>& cut, CoverCost* cost) : cut_(cut), cost_(*cost) {
    Add(whole.lo.data(), whole.hi.data(), -1);
  }

  void Reserve(size_t count) { rows_.reserve(count + 1); }
  void Add(const int64_t* lo, const int64_t* hi, int64_t weight) {
    Row<Number, kAxes> row{{}, weight};
    for (int i = 0; i < kAxes; ++i) {
      row.ends[2 * i] = static_cast<Number>(lo[cut_[i]]);
      row.ends[2 * i + 1] = static_cast<Number>(hi[cut_[i]]);
    }
    rows_.push_back(row);
  }

  // The first corner left, if any.
  std::optional<Miscover> Run() {
    for (int axis = kAxes - 1; axis >= 0; --axis) {
      Split(axis);
      SortAndCancel();
    }
    if (rows_.empty()) return std::nullopt;
    Miscover found{{}, rows_.front().weight + 1};
    for (int i = 0; i < kAxes; ++i) found.at[cut_[i]] = static_cast<int64_t>(rows_.front().ends[2 * i]);
    return found;
  }

 private:
  // An interval is the difference of two points.
  void Split(int axis) {
    const size_t count = rows_.size();
    rows_.reserve(2 * count);
    for (size_t i = 0; i < count; ++i) {
      Row<Number, kAxes> end = rows_[i];
      end.ends[2 * axis] = end.ends[2 * axis + 1];
      end.ends[2 * axis + 1] = 0;
      end.weight = -end.weight;
      rows_[i].ends[2 * axis + 1] = 0;
      rows_.push_back(end);
    }
    cost_.rows += rows_.size();
  }

  void SortAndCancel() {
    uint64_t comparisons = 0;
    std::sort(rows_.begin(), rows_.end(), [&comparisons](const auto& a, const auto& b) {
      ++comparisons;
      return a.ends < b.ends;
    });
    cost_.comparisons += comparisons;
    size_t kept = 0;
    for (size_t i = 0; i < rows_.size();) {
      Row<Number, kAxes> sum = rows_[i];
      for (++i; i < rows_.size() && rows_[i].ends == sum.ends; ++i) sum.weight += rows_[i].weight;
      if (sum.weight != 0) rows_[kept++] = sum;
    }
    rows_.resize(kept);
  }

  const std::array<int, kAxesMax> cut_;
  CoverCost& cost_;
  std::vector<Row<Number, kAxes>> rows_;
};

// Boxes that are the cells of a uniform grid, in row-major order.
bool IsGridInOrder(const Box& whole, const BoxList& boxes, CoverCost* cost) {
  const Box cell = BoxFrom(boxes[0], boxes.axes);
  int64_t cells = 1;
  KINTSUGI_CHECK(!IsEmpty(cell), "boxes of a cover have elements");
  for (int axis = 0; axis < whole.axes; ++axis) {
    if (whole.length(axis) % cell.length(axis) != 0) return false;
    if (__builtin_mul_overflow(cells, whole.length(axis) / cell.length(axis), &cells)) return false;
  }
  if (static_cast<uint64_t>(cells) != boxes.count) return false;
  Point next = whole.lo;
  for (size_t i = 0; i < boxes.count; ++i) {
    ++cost->comparisons;
    const int64_t *lo = boxes[i], *hi = lo + boxes.axes;
    for (int axis = 0; axis < boxes.axes; ++axis)
      if (lo[axis] != next[axis] || hi[axis] != next[axis] + cell.length(axis)) return false;
    for (int axis = boxes.axes - 1; axis >= 0; --axis) {
      next[axis] += cell.length(axis);
      if (next[axis] < whole.hi[axis]) break;
      next[axis] = whole.lo[axis];
    }
  }
  return true;
}

// Axes on which some box is shorter than the whole. Returns how many.
int FindCutAxes(const Box& whole, const BoxList& boxes, std::array<int, kAxesMax>* cut) {
  std::array<bool, kAxesMax> is_cut{};
  for (size_t i = 0; i < boxes.count; ++i)
    for (int axis = 0; axis < boxes.axes; ++axis)
      is_cut[axis] |= boxes[i][axis] != whole.lo[axis] || boxes[i][boxes.axes + axis] != whole.hi[axis];
  int count = 0;
  for (int axis = 0; axis < whole.axes; ++axis)
    if (is_cut[axis]) (*cut)[count++] = axis;
  return count;
}

template <typename Number, int kAxes>
std::optional<Miscover> Cancel(const Box& whole, const BoxList& boxes, const std::array<int, kAxesMax>& cut,
                               CoverCost* cost) {
  Canceller<Number, kAxes> canceller(whole, cut, cost);
  canceller.Reserve(boxes.count);
  for (size_t i = 0; i < boxes.count; ++i) canceller.Add(boxes[i], boxes[i] + boxes.axes, 1);
  return canceller.Run();
}

template <typename Number>
std::optional<Miscover> Cancel(int axes, const Box& whole, const BoxList& boxes, const std::array<int, kAxesMax>& cut,
                               CoverCost* cost) {
  switch (axes) {
    case 1:
      return Cancel<Number, 1>(whole, boxes, cut, cost);
    case 2:
      return Cancel<Number, 2>(whole, boxes, cut, cost);
    case 3:
      return Cancel<Number, 3>(whole, boxes, cut, cost);
    case 4:
      return Cancel<Number, 4>(whole, boxes, cut, cost);
    case 5:
      return Cancel<Number, 5>(whole, boxes, cut, cost);
    case 6:
      return Cancel<Number, 6>(whole, boxes, cut, cost);
    case 7:
      return Cancel<Number, 7>(whole, boxes, cut, cost);
    default:
      KINTSUGI_CHECK(axes == 8 && axes == kAxesMax, "axes that are cut are one to eight");
      return Cancel<Number, 8>(whole, boxes, cut, cost);
  }
}

}  // namespace

void BoxList::Add(const int64_t* lo_and_hi) {
  coordinates.insert(coordinates.end(), lo_and_hi, lo_and_hi + 2 * axes);
  ++count;
}

void BoxList::Add(const Box& box) {
  KINTSUGI_CHECK(box.axes == axes, "boxes of a list have as many axes as it");
  coordinates.insert(coordinates.end(), box.lo.begin(), box.lo.begin() + axes);
  coordinates.insert(coordinates.end(), box.hi.begin(), box.hi.begin() + axes);
  ++count;
}

std::optional<Miscover> FindMiscover(const Box& whole, const BoxList& boxes, CoverCost* cost) {
  KINTSUGI_CHECK(boxes.axes == whole.axes, "a cover has the axes of what it covers");
  CoverCost ignored;
  if (cost == nullptr) cost = &ignored;
  if (boxes.count == 0) return IsEmpty(whole) ? std::nullopt : std::optional(Miscover{whole.lo, 0});
  if (IsGridInOrder(whole, boxes, cost)) return std::nullopt;
  std::array<int, kAxesMax> cut{};
  const int axes = FindCutAxes(whole, boxes, &cut);
  std::optional<Miscover> found;
  if (axes == 0) {
    if (boxes.count != 1) found = Miscover{whole.lo, static_cast<int64_t>(boxes.count)};
    return found;
  }
  const bool is_small = std::all_of(whole.hi.begin(), whole.hi.begin() + whole.axes,
                                    [](int64_t hi) { return hi <= std::numeric_limits<uint32_t>::max(); });
  found = is_small ? Cancel<uint32_t>(axes, whole, boxes, cut, cost) : Cancel<int64_t>(axes, whole, boxes, cut, cost);
  if (found)
    for (int axis = 0; axis < whole.axes; ++axis)
      if (std::find(cut.begin(), cut.begin() + axes, axis) == cut.begin() + axes) found->at[axis] = whole.lo[axis];
  return found;
}

Box HoleAt(const Box& whole, const BoxList& boxes, const Point& at) {
  KINTSUGI_CHECK(Contains(whole, at), "a hole begins within what is covered");
  Box hole{.axes = whole.axes, .lo = at, .hi = at};
  for (int axis = 0; axis < whole.axes; ++axis) hole.hi[axis] = at[axis] + 1;
  for (int axis = whole.axes - 1; axis >= 0; --axis) {
    Box reach = hole;
    reach.hi[axis] = whole.hi[axis];
    for (size_t i = 0; i < boxes.count; ++i) {
      const int64_t start = boxes[i][axis];
      if (start > at[axis] && start < reach.hi[axis] && !IsEmpty(Intersect(reach, BoxFrom(boxes[i], boxes.axes))))
        reach.hi[axis] = start;
    }
    hole = reach;
  }
  return hole;
}

}  // namespace kintsugi::layout
