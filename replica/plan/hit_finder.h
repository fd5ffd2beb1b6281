// HitFinder: the boxes that one target piece takes from the shares of its key (private to this folder).
//
// What: a piece is cut into boxes (a flat range: at most 2n - 1). Each is looked up among the regions of the source,
// and within a region the shares that meet it are walked in row-major order: from an element, to the share that has it,
// to the next element of the box past that share, and so on, so that shares that lie between two rows of the box cost
// nothing. A flat range over the same box as the region's needs no boxes first: two ranges intersect as numbers. Order:
// boxes of the piece, then regions, then shares; the same whether all shares are asked or some of them. Cost: what is
// found, plus a logarithm for each.
// Units: elements.
// Threads: one.
#pragma once

#include <span>
#include <vector>

#include "replica/layout/flat_range.h"
#include "replica/plan/source_index.h"

namespace kintsugi::plan {

// What of the target is wanted: a piece, within the part of the tensor that both sides have.
struct Wanted {
  layout::Box box;          // of the piece
  FlatRange flat;           // of the box, always a range
  layout::Box common;       // of both tensors
  bool is_whole = true;     // the range is all of the box
  bool is_clipped = false;  // the box is not all within `common`
};

struct Hit {
  uint32_t share = 0;
  int64_t volume = 0;
};

class HitFinder {
 public:
  HitFinder(const SourceIndex& index, uint64_t* steps) : index_(index), steps_(*steps) {}

  // Hits of all shares. False: some element is hit by none, or by more than one (by volume); see Missing.
  bool FindAll(const Wanted& wanted);
  // Hits of these shares only. REQUIRES: ascending.
  void FindAmong(const Wanted& wanted, std::span<const uint32_t> shares);

  const std::vector<Hit>& hits() const { return hits_; }
  const int64_t* Coordinates(size_t hit) const { return coordinates_.data() + hit * 2 * static_cast<size_t>(axes_); }

  // After FindAll was false: the box of the piece that is not filled once, and what it has.
  struct Miss {
    layout::Box box;
    int64_t volume = 0;
    int64_t found = 0;
  };
  const Miss& miss() const { return miss_; }

 private:
  void Start(const Wanted& wanted);
  void Emit(uint32_t share, const layout::Box& box);
  void EmitRange(uint32_t share, const layout::Box& region, FlatRange range);
  void EmitWithin(uint32_t share, const layout::Box& region, const layout::Box& part);
  void Walk(const SourceIndex::Region& region, const layout::Box& box, const layout::Box& part);
  bool SharesBox(const Wanted& wanted, const layout::Box& region) const {
    return !wanted.is_whole && !wanted.is_clipped && region == wanted.box;
  }
  bool Check(const layout::Box& box, int64_t volume, size_t first_hit);

  const SourceIndex& index_;
  uint64_t& steps_;
  int axes_ = 0;
  std::vector<layout::Box> cells_;  // the wanted boxes
  std::vector<Hit> hits_;
  std::vector<int64_t> coordinates_;
  std::vector<uint32_t> regions_;
  Miss miss_;
};

}  // namespace kintsugi::plan
