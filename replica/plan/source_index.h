// SourceIndex: where the elements of one key are held (private to this folder).
//
// What: pieces with elements, in two levels. A *region* is a box that some pieces have in common; regions are found by
// a BoxIndex. Within a region lie *shares*: disjoint flat ranges of it in ascending order, each with its holders; a
// piece that is a whole box is the one share of its region. A share may be several pieces: a box and the flat range
// over all of it are the same elements.
//
//   key      +--------+--------+      region = box      shares = flat ranges within, row-major
//            |  r0    |  r1    |      r0: [0, 8)         one share, ranks 0 and 4
//            +--------+--------+      r1: [0, 3) [3, 8)  two shares, ranks 1 and 5
//
// Cost: linear for grids (box_index.h).
// Errors: kOutOfBounds, kFlatRange and kOverlap, where the metadata was not validated.
// Threads: one while it is built; it is built again for the next key.
#pragma once

#include <optional>
#include <vector>

#include "replica/plan/box_index.h"
#include "replica/plan/holder_sets.h"

namespace kintsugi::plan {

// Volume of a piece's box, or the error that it, or its flat range, is out of bounds.
Result<int64_t, layout::LayoutError> CheckBounds(const layout::KeyMeta& key, const layout::PieceView& piece);

class SourceIndex {
 public:
  struct Share {
    FlatRange flat;  // always a range, of the whole box too
    uint32_t first_piece = 0, last_piece = 0;
    uint32_t holders = 0;     // number of a set
    uint32_t occurrence = 0;  // shares of this key before it with the same holders
    uint32_t region = 0;
  };
  struct Region {
    uint32_t first_share = 0, end_share = 0;
    int64_t volume = 0;
  };

  explicit SourceIndex(HolderSets* sets) : sets_(*sets) {}

  // Indexes the key's pieces. At most one key at a time.
  std::optional<layout::LayoutError> Build(const layout::Metadata& source, const layout::KeyMeta& key);

  const BoxIndex& boxes() const { return boxes_; }
  layout::Box Box(const Region& region) const { return Box(static_cast<uint32_t>(&region - regions_.data())); }
  layout::Box Box(uint32_t region) const {
    return layout::BoxFrom(coordinates_.data() + region * 2 * static_cast<size_t>(axes_), axes_);
  }
  const std::vector<Region>& regions() const { return regions_; }
  const std::vector<Share>& shares() const { return shares_; }
  bool IsWhole(const Region& region) const {
    const Share& share = shares_[region.first_share];
    return share.flat.start == 0 && share.flat.stop == region.volume;
  }
  // The first share of a region that ends after element `at`; may be the region's end.
  uint32_t FindShare(const Region& region, int64_t at) const;
  // The piece of the share that `rank`, one of its holders, has.
  uint32_t PieceOf(const Share& share, int32_t rank) const;

 private:
  std::optional<layout::LayoutError> Add(const layout::KeyMeta& key, uint32_t index);
  void SetHolders(Share* share);

  HolderSets& sets_;
  const layout::Metadata* source_ = nullptr;
  const layout::KeyMeta* key_ = nullptr;
  int axes_ = 0;
  std::vector<int64_t> coordinates_;
  std::vector<Region> regions_;
  std::vector<Share> shares_;
  struct Occurrences {
    uint32_t build = 0, count = 0;
  };
  std::vector<Occurrences> occurrences_;  // per set; of this key where `build` is the current one
  uint32_t build_ = 0;
  std::vector<int32_t> ranks_;
  BoxIndex boxes_;
};

}  // namespace kintsugi::plan
