// What a plan must do, slowly and obviously: element by element.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "replica/layout/flat_range.h"
#include "replica/plan/planner.h"

namespace kintsugi::plan {

using layout::Box;
using layout::KeyMeta;
using layout::Metadata;
using layout::PieceView;

// Global element numbers of a piece, in row-major order of its box.
inline std::vector<int64_t> ElementsOf(const KeyMeta& key, const PieceView& piece) {
  const Box whole = key.Whole(), box = piece.box();
  std::vector<int64_t> elements;
  const int64_t volume = *Volume(box);
  for (int64_t i = 0; i < volume; ++i)
    if (!piece.is_flat() || (i >= piece.flat.start && i < piece.flat.stop))
      elements.push_back(Ravel(whole, Unravel(box, i)));
  return elements;
}

// Which ranks hold each element of a key.
inline std::map<int64_t, std::vector<int32_t>> HoldersOf(const Metadata& metadata, const KeyMeta& key) {
  std::map<int64_t, std::vector<int32_t>> holders;
  for (uint32_t i = 0; i < key.piece_count; ++i) {
    const PieceView piece = metadata.Piece(key, key.first_piece + i);
    for (int64_t element : ElementsOf(key, piece))
      for (const layout::Holder& holder : piece.holders) holders[element].push_back(holder.rank);
  }
  return holders;
}

// Whether a source holds all that the target asks for; both have one key of one global shape.
inline bool IsPlannable(const Metadata& source, const Metadata& target) {
  const auto held = HoldersOf(source, source.keys[0]);
  for (const auto& [element, ranks] : HoldersOf(target, target.keys[0]))
    if (!held.count(element)) return false;
  return true;
}

// Carries the plan out over element numbers: every target element is written once, by a rank that holds it, with the
// nearest such rank: the receiver itself, then its host, then any.
inline void ExpectRight(const Plan& plan, const Metadata& source, const Metadata& target,
                        std::span<const int32_t> hosts = {}) {
  const KeyMeta &held = source.keys[0], &wanted = target.keys[0];
  const auto holders = HoldersOf(source, held);
  const Box whole = wanted.Whole();
  std::map<std::tuple<uint32_t, int32_t, int64_t>, int> written;
  const auto host = [&](int32_t rank) {
    return static_cast<size_t>(rank) < hosts.size() ? hosts[static_cast<size_t>(rank)] : 1000 + rank;
  };
  int64_t bytes = 0, elements = 0;
  for (uint64_t i = 0; i < plan.moves.size(); ++i) {
    const Move& move = plan.moves[i];
    const Box box = plan.BoxOf(plan.keys[0], i, wanted.axes);
    ASSERT_EQ(move.bytes, *Volume(box) * static_cast<int64_t>(DTypeSize(held.dtype)));
    bytes += move.bytes;
    const auto of_piece = ElementsOf(held, source.Piece(held, move.source_piece));
    for (int64_t e = 0; e < *Volume(box); ++e) {
      const int64_t element = Ravel(whole, Unravel(box, e));
      ++written[{move.target_piece, move.to, element}];
      const auto& able = holders.at(element);
      ASSERT_TRUE(std::binary_search(of_piece.begin(), of_piece.end(), element)) << "not in the named piece";
      ASSERT_TRUE(std::count(able.begin(), able.end(), move.from)) << "rank " << move.from << " has no " << element;
      if (std::count(able.begin(), able.end(), move.to)) {
        ASSERT_EQ(move.from, move.to) << "a local copy was there";
      }
      const auto is_near = [&](int32_t rank) { return host(rank) == host(move.to); };
      if (std::any_of(able.begin(), able.end(), is_near)) {
        ASSERT_TRUE(is_near(move.from)) << "a host's copy was there";
      }
    }
  }
  for (uint32_t i = 0; i < wanted.piece_count; ++i) {
    const PieceView piece = target.Piece(wanted, wanted.first_piece + i);
    for (size_t h = 0; h < piece.holders.size(); ++h) {
      if (h > 0 && piece.holders[h].rank == piece.holders[h - 1].rank) continue;
      for (int64_t element : ElementsOf(wanted, piece)) {
        ++elements;
        const int times = written[{wanted.first_piece + i, piece.holders[h].rank, element}];
        ASSERT_EQ(times, 1) << "element " << element;
      }
    }
  }
  ASSERT_EQ(bytes, elements * static_cast<int64_t>(DTypeSize(held.dtype)));
}

}  // namespace kintsugi::plan
