// BoxIndex: which of many boxes meet a given one (private to this folder).
//
// What: boxes whose intervals are a product of sorted, disjoint intervals per axis (regular and uneven grids, every
// partition of one axis) are found by binary search on each axis and arithmetic. All others are found in a hierarchy of
// bounding boxes, halved at the median of the axis on which the centres spread most: flat arrays, log n levels. Boxes
// may overlap. Cost: building n log n, or n for grids; a query of a tiling costs what it finds, plus log n.
// Units: elements.
// Threads: queries of a built index may run at once when each has its own `found`. REQUIRES: no box is empty; the
// coordinates stay in place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "replica/layout/box.h"

namespace kintsugi::plan {

class BoxIndex {
 public:
  // Per box all lo, then all hi.
  void Build(int axes, const std::vector<int64_t>& coordinates, size_t count);

  // Ascending numbers of the boxes that meet `box`, which is not empty. Adds what was looked at to `steps`.
  void Find(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const;

  bool is_grid() const { return is_grid_; }

 private:
  struct Node {
    uint32_t first = 0, end = 0;  // of order_
    uint32_t right = 0;           // the left child follows its parent; 0: a leaf
  };

  const int64_t* Lo(size_t i) const { return coordinates_ + i * 2 * static_cast<size_t>(axes_); }
  const int64_t* Hi(size_t i) const { return Lo(i) + axes_; }
  bool BuildGrid(size_t count);
  bool AddCuts(int axis, size_t stride, size_t count);
  bool IsProduct(size_t count) const;
  void FindInGrid(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const;

  uint32_t BuildNode(uint32_t first, uint32_t end);
  void SetBounds(uint32_t node);
  int WidestAxis(uint32_t first, uint32_t end) const;
  void FindInTree(const layout::Box& box, std::vector<uint32_t>* found, uint64_t* steps) const;

  int axes_ = 0;
  const int64_t* coordinates_ = nullptr;
  bool is_grid_ = false;
  // A grid's intervals, per axis ascending.
  std::array<std::vector<int64_t>, layout::kAxesMax> los_, his_;
  // A tree's nodes in preorder, with their bounds.
  std::vector<Node> nodes_;
  std::vector<int64_t> bounds_;
  std::vector<uint32_t> order_;
};

}  // namespace kintsugi::plan
