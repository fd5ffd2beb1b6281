// MetadataWriter: appends keys, pieces and holders in canonical order (private to this folder).
//
// REQUIRES: the caller appends in order; the arrays are what it makes of the calls, nothing is checked but overflow
// of the piece count.
#pragma once

#include "replica/layout/metadata.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {

class MetadataWriter {
 public:
  explicit MetadataWriter(Metadata* out) : out_(*out) { out_.first_holder.assign(1, 0); }

  void AddKey(const KeyMeta& key) {
    KeyMeta& added = out_.keys.emplace_back(key);
    added.first_piece = out_.piece_count();
    added.piece_count = 0;
    added.first_coordinate = out_.coordinates.size();
  }

  // A piece of the last key; `coordinates` are its lo, then its hi. The first holder must follow.
  void AddPiece(const int64_t* coordinates, FlatRange flat) {
    KINTSUGI_CHECK(!out_.keys.empty(), "a piece is of the key before it");
    KINTSUGI_CHECK(out_.flat.size() < UINT32_MAX, "a metadata holds fewer than 2^32 pieces");
    KeyMeta& key = out_.keys.back();
    ++key.piece_count;
    out_.coordinates.insert(out_.coordinates.end(), coordinates, coordinates + 2 * key.axes);
    out_.flat.push_back(flat);
    out_.first_holder.push_back(out_.first_holder.back());
  }

  // A holder of the last piece.
  void AddHolder(Holder holder) {
    out_.holders.push_back(holder);
    ++out_.first_holder.back();
  }

 private:
  Metadata& out_;
};

// The order of pieces of one key: by coordinates (lo, then hi), then by flat range; unflattened first.
inline int ComparePieces(const int64_t* a, FlatRange flat_a, const int64_t* b, FlatRange flat_b, int axes) {
  for (int i = 0; i < 2 * axes; ++i)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  if (flat_a.start != flat_b.start) return flat_a.start < flat_b.start ? -1 : 1;
  return flat_a.stop < flat_b.stop ? -1 : flat_b.stop < flat_a.stop;
}

}  // namespace kintsugi::layout
