// Metadata: which rank holds which piece of which key. The one form in which layouts are merged, judged, stored and
// planned.
//
// What: three levels in flat arrays, with no allocation per shard, for millions of them:
//   key     a name with its dtype and global shape; ranks that disagree about a name give it several keys
//   piece   a box of the key, perhaps with a flat range within it
//   holder  a rank that holds the piece, under which replica id
// An object is a key whose global shape counts objects and whose pieces are boxes of one element: the same rules fit
// it. A rank whose own descriptors are wrong contributes a refusal instead, so that every rank comes to the same
// verdict.
// Invariants: the form is canonical. Keys, pieces of a key, holders of a piece, replica ids, refusals and ranks are
// sorted; keys, pieces and replica ids are distinct; every key has a piece, every piece a holder, every replica id is
// used. So equal content gives equal bytes. 0 <= lo <= hi and 0 <= start <= stop hold; bounds, cover and agreement are
// Validate's business.
// Units: elements.
// Memory: 16 * axes + 24 bytes for each piece, 8 for each holder.
// Threads: plain data; readers may share it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/layout/box.h"
#include "replica/layout/error.h"

namespace kintsugi::layout {

// Limits of one metadata; what is over them is an error, never a crash.
inline constexpr int32_t kRanksMax = 1 << 20;
inline constexpr size_t kReplicaIdLengthMax = 16;
// Refusals kept by a merge: the first ones in their order.
inline constexpr size_t kRefusalsMax = 1024;

enum class KeyKind : uint8_t { kTensor = 0, kObject = 1 };

// A name and all that its holders must agree on.
struct KeyMeta {
  std::string name;
  KeyKind kind = KeyKind::kTensor;
  DType dtype = DType::kUInt8;  // kUInt8 for an object
  uint8_t axes = 0;
  bool is_grid = false;  // every piece has one shape and sits on a multiple of it
  bool allow_shape_mismatch = false;
  Point global_shape{};
  Point fragments{};  // pieces per axis, where is_grid
  // Where its pieces are; no part of its identity.
  uint32_t first_piece = 0;
  uint32_t piece_count = 0;
  uint64_t first_coordinate = 0;

  Box Whole() const { return WholeBox({global_shape.data(), axes}); }
};

// The order of keys: by name, then by all that is part of their identity.
KINTSUGI_EXPORT int Compare(const KeyMeta& a, const KeyMeta& b);

struct Holder {
  int32_t rank = 0;
  uint32_t replica = 0;  // number of the replica id
  auto operator<=>(const Holder&) const = default;
};

// A piece without a flat range.
inline constexpr FlatRange kNotFlat = {-1, -1};

// The caller's replica ids, each kept once.
class KINTSUGI_EXPORT ReplicaIds {
 public:
  uint32_t size() const { return static_cast<uint32_t>(is_main_.size()); }
  std::span<const int64_t> operator[](uint32_t number) const {
    return {values_.data() + first_[number], first_[number + 1] - first_[number]};
  }
  bool IsMain(uint32_t number) const { return is_main_[number]; }
  void Append(std::span<const int64_t> id);
  bool operator==(const ReplicaIds&) const = default;

 private:
  std::vector<int64_t> values_;
  std::vector<uint64_t> first_ = {0};
  std::vector<uint8_t> is_main_;
};

// One piece, as a view into the arrays.
struct PieceView {
  const int64_t* lo = nullptr;  // `axes` numbers each
  const int64_t* hi = nullptr;
  int axes = 0;
  FlatRange flat = kNotFlat;
  std::span<const Holder> holders;

  bool is_flat() const { return flat != kNotFlat; }
  Box box() const { return BoxFrom(lo, axes); }
};

struct Metadata {
  std::vector<int32_t> ranks;  // whose lists are in here; a rank that was merged twice is here twice
  std::vector<KeyMeta> keys;
  std::vector<int64_t> coordinates;          // per piece: lo of all axes, then hi of all axes
  std::vector<FlatRange> flat;               // per piece, kNotFlat where there is none
  std::vector<uint64_t> first_holder = {0};  // per piece, and the end
  std::vector<Holder> holders;
  ReplicaIds replica_ids;
  std::vector<LayoutError> refusals;

  uint32_t piece_count() const { return static_cast<uint32_t>(flat.size()); }
  // The piece with number `index` of all; it must be the key's.
  PieceView Piece(const KeyMeta& key, uint32_t index) const {
    const int64_t* lo = coordinates.data() + key.first_coordinate + uint64_t{index - key.first_piece} * 2 * key.axes;
    return {lo,
            lo + key.axes,
            key.axes,
            flat[index],
            {holders.data() + first_holder[index], first_holder[index + 1] - first_holder[index]}};
  }
  bool IsMain(const Holder& holder) const { return replica_ids.IsMain(holder.replica); }
  // Keys with this name: none, one, or several where ranks disagree.
  KINTSUGI_EXPORT std::span<const KeyMeta> Find(std::string_view name) const;
  // Number of the key that has the piece. REQUIRES: piece < piece_count().
  KINTSUGI_EXPORT uint32_t KeyOfPiece(uint32_t piece) const;
};

// XXH3-64 over all of the content: equal on all ranks exactly when they have the same metadata.
KINTSUGI_EXPORT uint64_t DigestOf(const Metadata& metadata);

}  // namespace kintsugi::layout
