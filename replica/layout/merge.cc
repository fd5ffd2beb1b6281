#include "replica/layout/merge.h"

#include <algorithm>

#include "replica/layout/metadata_writer.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

// Old number -> number among the ids of both.
struct ReplicaNumbers {
  std::vector<uint32_t> of_a, of_b;
};

ReplicaNumbers MergeReplicaIds(const ReplicaIds& a, const ReplicaIds& b, ReplicaIds* out) {
  ReplicaNumbers numbers{std::vector<uint32_t>(a.size()), std::vector<uint32_t>(b.size())};
  uint32_t i = 0, j = 0;
  const auto before = [](std::span<const int64_t> x, std::span<const int64_t> y) {
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  };
  while (i < a.size() || j < b.size()) {
    const bool take_a = i < a.size() && (j == b.size() || !before(b[j], a[i]));
    const bool take_b = j < b.size() && (i == a.size() || !before(a[i], b[j]));
    const auto id = take_a ? a[i] : b[j];
    if (take_a) numbers.of_a[i++] = out->size();
    if (take_b) numbers.of_b[j++] = out->size();
    out->Append(id);
  }
  return numbers;
}

// One side of a merge: where its reader stands, and its replica ids' new numbers.
struct Side {
  const Metadata& metadata;
  const std::vector<uint32_t>& replica_number;

  Holder Renumbered(const Holder& holder) const { return {holder.rank, replica_number[holder.replica]}; }
  void CopyPiece(const KeyMeta& key, uint32_t index, MetadataWriter* writer) const {
    const PieceView piece = metadata.Piece(key, index);
    writer->AddPiece(piece.lo, piece.flat);
    for (const Holder& holder : piece.holders) writer->AddHolder(Renumbered(holder));
  }
};

void JoinHolders(const Side& a, const PieceView& piece_a, const Side& b, const PieceView& piece_b,
                 MetadataWriter* writer) {
  writer->AddPiece(piece_a.lo, piece_a.flat);
  size_t i = 0, j = 0;
  while (i < piece_a.holders.size() || j < piece_b.holders.size()) {
    const bool take_a =
        j == piece_b.holders.size() ||
        (i < piece_a.holders.size() && a.Renumbered(piece_a.holders[i]) <= b.Renumbered(piece_b.holders[j]));
    writer->AddHolder(take_a ? a.Renumbered(piece_a.holders[i++]) : b.Renumbered(piece_b.holders[j++]));
  }
}

void JoinPieces(const Side& a, const KeyMeta& key_a, const Side& b, const KeyMeta& key_b, MetadataWriter* writer) {
  uint32_t i = key_a.first_piece, j = key_b.first_piece;
  const uint32_t end_a = i + key_a.piece_count, end_b = j + key_b.piece_count;
  while (i < end_a && j < end_b) {
    const PieceView piece_a = a.metadata.Piece(key_a, i), piece_b = b.metadata.Piece(key_b, j);
    const int order = ComparePieces(piece_a.lo, piece_a.flat, piece_b.lo, piece_b.flat, key_a.axes);
    if (order == 0)
      JoinHolders(a, piece_a, b, piece_b, writer), ++i, ++j;
    else if (order < 0)
      a.CopyPiece(key_a, i++, writer);
    else
      b.CopyPiece(key_b, j++, writer);
  }
  while (i < end_a) a.CopyPiece(key_a, i++, writer);
  while (j < end_b) b.CopyPiece(key_b, j++, writer);
}

void CopyKey(const Side& side, const KeyMeta& key, MetadataWriter* writer) {
  writer->AddKey(key);
  for (uint32_t i = 0; i < key.piece_count; ++i) side.CopyPiece(key, key.first_piece + i, writer);
}

void JoinKeys(const Side& a, const Side& b, MetadataWriter* writer) {
  auto key_a = a.metadata.keys.begin(), key_b = b.metadata.keys.begin();
  const auto end_a = a.metadata.keys.end(), end_b = b.metadata.keys.end();
  while (key_a != end_a && key_b != end_b) {
    const int order = Compare(*key_a, *key_b);
    if (order == 0) {
      writer->AddKey(*key_a);
      JoinPieces(a, *key_a++, b, *key_b++, writer);
    } else if (order < 0) {
      CopyKey(a, *key_a++, writer);
    } else {
      CopyKey(b, *key_b++, writer);
    }
  }
  for (; key_a != end_a; ++key_a) CopyKey(a, *key_a, writer);
  for (; key_b != end_b; ++key_b) CopyKey(b, *key_b, writer);
}

}  // namespace

Metadata Merge(const Metadata& a, const Metadata& b) {
  Metadata out;
  std::merge(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), std::back_inserter(out.ranks));
  std::merge(a.refusals.begin(), a.refusals.end(), b.refusals.begin(), b.refusals.end(),
             std::back_inserter(out.refusals), Before);
  if (out.refusals.size() > kRefusalsMax) out.refusals.resize(kRefusalsMax);
  const ReplicaNumbers numbers = MergeReplicaIds(a.replica_ids, b.replica_ids, &out.replica_ids);
  out.holders.reserve(a.holders.size() + b.holders.size());
  out.flat.reserve(std::max(a.flat.size(), b.flat.size()));
  out.coordinates.reserve(std::max(a.coordinates.size(), b.coordinates.size()));
  MetadataWriter writer(&out);
  JoinKeys({a, numbers.of_a}, {b, numbers.of_b}, &writer);
  KINTSUGI_CHECK(out.holders.size() == a.holders.size() + b.holders.size(), "a merge has the holders of both");
  KINTSUGI_CHECK(out.first_holder.back() == out.holders.size(), "each of them is of a piece");
  return out;
}

Metadata MergeAll(std::span<const Metadata> lists) {
  if (lists.empty()) return Merge({}, {});
  if (lists.size() == 1) return lists.front();
  const size_t half = lists.size() / 2;
  return Merge(MergeAll(lists.first(half)), MergeAll(lists.subspan(half)));
}

}  // namespace kintsugi::layout
