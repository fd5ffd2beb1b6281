#include "replica/plan/box_index.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace kintsugi::plan {
namespace {

constexpr uint32_t kLeafMax = 4;

bool Meets(const int64_t* lo, const int64_t* hi, const layout::Box& box) {
  for (int axis = 0; axis < box.axes; ++axis)
    if (lo[axis] >= box.hi[axis] || hi[axis] <= box.lo[axis]) return false;
  return true;
}

}  // namespace

void BoxIndex::Build(int axes, const std::vector<int64_t>& coordinates, size_t count) {
  KINTSUGI_CHECK(0 <= axes && axes <= layout::kAxesMax && count <= UINT32_MAX, "boxes of an index are numbered");
  KINTSUGI_CHECK(coordinates.size() == 2 * static_cast<size_t>(axes) * count, "each of them has a lo and a hi");
  axes_ = axes;
  coordinates_ = coordinates.data();
  nodes_.clear();
  bounds_.clear();
  order_.clear();
  is_grid_ = BuildGrid(count);
  if (is_grid_ || count == 0) return;
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0u);
  BuildNode(0, static_cast<uint32_t>(count));
}

void BoxIndex::Find(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const {
  KINTSUGI_CHECK(box.axes == axes_, "a box that is looked up has the axes of the index");
  found->clear();
  if (is_grid_)
    FindInGrid(box, found, steps);
  else if (!nodes_.empty())
    FindInTree(box, found, steps);
}

// --- grids ---------------------------------------------------------------------------------------------------------

bool BoxIndex::BuildGrid(size_t count) {
  if (count == 0) return false;
  size_t stride = 1;
  for (int axis = axes_ - 1; axis >= 0; --axis) {
    if (!AddCuts(axis, stride, count)) return false;
    stride *= los_[axis].size();
  }
  return stride == count && IsProduct(count);
}

// The intervals of an axis: those of every stride-th box, as long as the axes before it stay where they are.
bool BoxIndex::AddCuts(int axis, size_t stride, size_t count) {
  los_[axis].clear();
  his_[axis].clear();
  for (size_t i = 0; i < count && std::equal(Lo(i), Lo(i) + axis, Lo(0)); i += stride) {
    if (!his_[axis].empty() && Lo(i)[axis] < his_[axis].back()) return false;
    los_[axis].push_back(Lo(i)[axis]);
    his_[axis].push_back(Hi(i)[axis]);
  }
  return true;
}

// Every box is the product of its intervals, in row-major order.
bool BoxIndex::IsProduct(size_t count) const {
  std::array<size_t, layout::kAxesMax> at{};
  for (size_t i = 0; i < count; ++i) {
    for (int axis = 0; axis < axes_; ++axis)
      if (Lo(i)[axis] != los_[axis][at[axis]] || Hi(i)[axis] != his_[axis][at[axis]]) return false;
    for (int axis = axes_ - 1; axis >= 0; --axis) {
      if (++at[axis] < los_[axis].size()) break;
      at[axis] = 0;
    }
  }
  return true;
}

void BoxIndex::FindInGrid(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const {
  ++*steps;
  // Per axis the first and the last interval that meets, and how far one is from the next.
  std::array<size_t, layout::kAxesMax> first, end, at, stride;
  size_t number = 0, step = 1;
  for (int axis = axes_ - 1; axis >= 0; --axis) {
    const auto& lo = los_[axis];
    const auto& hi = his_[axis];
    first[axis] = static_cast<size_t>(std::upper_bound(hi.begin(), hi.end(), box.lo[axis]) - hi.begin());
    end[axis] = static_cast<size_t>(std::lower_bound(lo.begin(), lo.end(), box.hi[axis]) - lo.begin());
    if (first[axis] >= end[axis]) return;
    at[axis] = first[axis];
    stride[axis] = step;
    number += first[axis] * step;
    step *= lo.size();
  }
  while (true) {
    ++*steps;
    found->push_back(static_cast<uint32_t>(number));
    int axis = axes_ - 1;
    for (; axis >= 0; --axis) {
      number += stride[axis];
      if (++at[axis] < end[axis]) break;
      number -= (end[axis] - first[axis]) * stride[axis];
      at[axis] = first[axis];
    }
    if (axis < 0) return;
  }
}

// --- everything else -----------------------------------------------------------------------------------------------

uint32_t BoxIndex::BuildNode(uint32_t first, uint32_t end) {
  const auto node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({first, end, 0});
  bounds_.resize(bounds_.size() + 2 * static_cast<size_t>(axes_));
  SetBounds(node);
  if (end - first <= kLeafMax) return node;
  const uint32_t middle = first + (end - first) / 2;
  const int axis = WidestAxis(first, end);
  const auto centre = [&](uint32_t i) { return axes_ == 0 ? 0 : Lo(i)[axis] / 2 + Hi(i)[axis] / 2; };
  std::nth_element(order_.begin() + first, order_.begin() + middle, order_.begin() + end,
                   [&](uint32_t a, uint32_t b) { return std::pair(centre(a), a) < std::pair(centre(b), b); });
  BuildNode(first, middle);
  const uint32_t right = BuildNode(middle, end);
  nodes_[node].right = right;
  return node;
}

void BoxIndex::SetBounds(uint32_t node) {
  int64_t* lo = bounds_.data() + node * 2 * static_cast<size_t>(axes_);
  int64_t* hi = lo + axes_;
  for (uint32_t i = nodes_[node].first; i < nodes_[node].end; ++i)
    for (int axis = 0; axis < axes_; ++axis) {
      const bool is_first = i == nodes_[node].first;
      lo[axis] = is_first ? Lo(order_[i])[axis] : std::min(lo[axis], Lo(order_[i])[axis]);
      hi[axis] = is_first ? Hi(order_[i])[axis] : std::max(hi[axis], Hi(order_[i])[axis]);
    }
}

int BoxIndex::WidestAxis(uint32_t first, uint32_t end) const {
  int widest = 0;
  double width = -1;
  for (int axis = 0; axis < axes_; ++axis) {
    // Relative to the length of the boxes: many short ones side by side are what a cut separates.
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    double length = 0;
    for (uint32_t i = first; i < end; ++i) {
      const int64_t *box_lo = Lo(order_[i]), *box_hi = Hi(order_[i]);
      lo = std::min(lo, box_lo[axis]);
      hi = std::max(hi, box_hi[axis]);
      length += static_cast<double>(box_hi[axis] - box_lo[axis]);
    }
    const double spread = static_cast<double>(hi - lo) / length;
    if (spread > width) width = spread, widest = axis;
  }
  return widest;
}

void BoxIndex::FindInTree(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const {
  std::array<uint32_t, 64> stack;
  size_t depth = 0;
  stack[depth++] = 0;
  while (depth > 0) {
    const uint32_t number = stack[--depth];
    const Node& node = nodes_[number];
    ++*steps;
    const int64_t* lo = bounds_.data() + number * 2 * static_cast<size_t>(axes_);
    if (!Meets(lo, lo + axes_, box)) continue;
    if (node.right != 0) {
      KINTSUGI_CHECK(depth + 2 <= stack.size(), "a tree of halves is no deeper than 32 bits");
      stack[depth++] = node.right;
      stack[depth++] = number + 1;
      continue;
    }
    for (uint32_t i = node.first; i < node.end; ++i, ++*steps)
      if (Meets(Lo(order_[i]), Hi(order_[i]), box)) found->push_back(order_[i]);
  }
  std::sort(found->begin(), found->end());
}

}  // namespace kintsugi::plan
