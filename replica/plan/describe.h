// Words for messages, and holders of a piece (private to this folder).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::plan {

inline std::string Name(const layout::KeyMeta& key) {
  return (key.kind == layout::KeyKind::kObject ? "object '" : "tensor '") + key.name + "'";
}

inline std::string Name(const layout::PieceView& piece) {
  std::string text = layout::Describe(piece.box());
  if (piece.is_flat()) text += " flat " + std::to_string(piece.flat.start) + ".." + std::to_string(piece.flat.stop);
  return text;
}

// Holders are sorted by rank; one rank may be there under several replica ids.
inline std::vector<int32_t> RanksOf(const layout::PieceView& piece) {
  std::vector<int32_t> ranks;
  for (const layout::Holder& holder : piece.holders)
    if (ranks.empty() || ranks.back() != holder.rank) ranks.push_back(holder.rank);
  return ranks;
}

inline bool HasHolder(const layout::PieceView& piece, int32_t rank) {
  if (piece.holders.size() == 1) return piece.holders[0].rank == rank;
  const auto at = std::lower_bound(piece.holders.begin(), piece.holders.end(), rank,
                                   [](const layout::Holder& holder, int32_t wanted) { return holder.rank < wanted; });
  return at != piece.holders.end() && at->rank == rank;
}

inline std::vector<int32_t> JoinRanks(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

inline layout::LayoutError TooMany(const layout::KeyMeta& key, uint64_t moves_max) {
  return {layout::ErrorCode::kTooLarge,
          key.name,
          {},
          key.Whole(),
          Name(key) + ": with it the plan has more moves than the limit of " + std::to_string(moves_max)};
}

}  // namespace kintsugi::plan
