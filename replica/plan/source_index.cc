#include "replica/plan/source_index.h"

#include <algorithm>

#include "replica/plan/describe.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {

using layout::ErrorCode;
using layout::LayoutError;

Result<int64_t, layout::LayoutError> CheckBounds(const layout::KeyMeta& key, const layout::PieceView& piece) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    return LayoutError{code, key.name, RanksOf(piece), piece.box(),
                       Name(key) + ": " + Name(piece) + ", on " + layout::DescribeRanks(RanksOf(piece)) + ", " + what};
  };
  int64_t volume = 1;
  bool is_too_large = false, is_empty = false;
  for (int axis = 0; axis < piece.axes; ++axis) {
    if (piece.hi[axis] > key.global_shape[axis])
      return refuse(ErrorCode::kOutOfBounds, "ends at " + std::to_string(piece.hi[axis]) + " of axis " +
                                                 std::to_string(axis) + ", whose global length is " +
                                                 std::to_string(key.global_shape[axis]));
    const int64_t length = piece.hi[axis] - piece.lo[axis];
    is_empty |= length == 0;
    is_too_large |= __builtin_mul_overflow(volume, length, &volume);
  }
  if (is_empty) volume = 0;
  if (is_too_large && !is_empty) return refuse(ErrorCode::kTooLarge, "has more elements than 63 bits count");
  if (piece.is_flat() && piece.flat.stop > volume)
    return refuse(ErrorCode::kFlatRange,
                  "has a flat range up to " + std::to_string(piece.flat.stop) + " of " + std::to_string(volume));
  return volume;
}

std::optional<LayoutError> SourceIndex::Build(const layout::Metadata& source, const layout::KeyMeta& key) {
  source_ = &source;
  key_ = &key;
  axes_ = key.axes;
  coordinates_.clear();
  regions_.clear();
  shares_.clear();
  ++build_;
  for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i)
    if (auto error = Add(key, i)) return error;
  for (Share& share : shares_) SetHolders(&share);
  KINTSUGI_CHECK(shares_.size() >= regions_.size(), "each region has a share");
  boxes_.Build(axes_, coordinates_, regions_.size());
  return std::nullopt;
}

// Pieces come sorted by box, then by flat range, so that those of a region follow one another.
std::optional<LayoutError> SourceIndex::Add(const layout::KeyMeta& key, uint32_t index) {
  const layout::PieceView piece = source_->Piece(key, index);
  const auto volume = CheckBounds(key, piece);
  if (!volume.ok()) return volume.error();
  const FlatRange flat = piece.is_flat() ? piece.flat : FlatRange{0, *volume};
  if (flat.start == flat.stop) return std::nullopt;
  const size_t width = 2 * static_cast<size_t>(axes_);
  if (regions_.empty() || !std::equal(piece.lo, piece.lo + width, coordinates_.end() - static_cast<ptrdiff_t>(width))) {
    coordinates_.insert(coordinates_.end(), piece.lo, piece.lo + width);
    const auto share = static_cast<uint32_t>(shares_.size());
    regions_.push_back({share, share, *volume});
  }
  Region& region = regions_.back();
  if (region.first_share < region.end_share) {
    Share& last = shares_.back();
    if (last.flat == flat) {
      last.last_piece = index;
      return std::nullopt;
    }
    if (flat.start < last.flat.stop) {
      const layout::PieceView other = source_->Piece(key, last.first_piece);
      return LayoutError{ErrorCode::kOverlap, key.name, JoinRanks(RanksOf(other), RanksOf(piece)), piece.box(),
                         Name(key) + ": " + Name(other) + ", on " + layout::DescribeRanks(RanksOf(other)) +
                             ", overlaps " + Name(piece) + ", on " + layout::DescribeRanks(RanksOf(piece))};
    }
  }
  ++region.end_share;
  shares_.push_back({flat, index, index, 0, 0, static_cast<uint32_t>(regions_.size() - 1)});
  return std::nullopt;
}

void SourceIndex::SetHolders(Share* share) {
  ranks_.clear();
  for (uint32_t i = share->first_piece; i <= share->last_piece; ++i) {
    const layout::PieceView piece = source_->Piece(*key_, i);
    if (i != share->first_piece && i != share->last_piece && piece.is_flat() && piece.flat.start == piece.flat.stop)
      continue;
    for (const layout::Holder& holder : piece.holders)
      if (ranks_.empty() || ranks_.back() != holder.rank) ranks_.push_back(holder.rank);
  }
  if (share->first_piece != share->last_piece) {
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
  }
  share->holders = sets_.Intern(ranks_);
  if (occurrences_.size() <= share->holders) occurrences_.resize(share->holders + 1);
  Occurrences& of_set = occurrences_[share->holders];
  if (of_set.build != build_) of_set = {build_, 0};
  share->occurrence = of_set.count++;
}

uint32_t SourceIndex::FindShare(const Region& region, int64_t at) const {
  const auto first = shares_.begin() + region.first_share, end = shares_.begin() + region.end_share;
  return static_cast<uint32_t>(
      std::upper_bound(first, end, at, [](int64_t x, const Share& share) { return x < share.flat.stop; }) -
      shares_.begin());
}

uint32_t SourceIndex::PieceOf(const Share& share, int32_t rank) const {
  for (uint32_t i = share.first_piece; i < share.last_piece; ++i) {
    const layout::PieceView piece = source_->Piece(*key_, i);
    const bool is_empty = piece.is_flat() && piece.flat.start == piece.flat.stop;
    if (!is_empty && HasHolder(piece, rank)) return i;
  }
  return share.last_piece;
}

}  // namespace kintsugi::plan
