#include "replica/layout/decode_key.h"

#include <limits>

#include "callbacks/state/key.h"

namespace kintsugi::layout {
namespace {

constexpr uint64_t kNumberMax = std::numeric_limits<int64_t>::max();

std::string Both(uint64_t found, uint64_t wanted) {
  return std::to_string(found) + " where " + std::to_string(wanted) + " must be";
}

// The key without its pieces.
std::optional<LayoutError> DecodeHead(const wire::Key& entry, KeyMeta* key) {
  if (const Status valid = ValidateKey(entry.name()); !valid.ok()) return FormatError(entry.name(), valid.message());
  if (entry.kind() > static_cast<uint32_t>(KeyKind::kObject))
    return FormatError(entry.name(), "kind " + std::to_string(entry.kind()) + " is unknown");
  if (entry.dtype() > 255 || !IsKnown(static_cast<DType>(entry.dtype())))
    return FormatError(entry.name(), "dtype number " + std::to_string(entry.dtype()) + " is unknown");
  if (entry.global_shape_size() > kAxesMax)
    return FormatError(entry.name(),
                       std::to_string(entry.global_shape_size()) + " axes; the limit is " + std::to_string(kAxesMax));
  key->name = entry.name();
  key->kind = static_cast<KeyKind>(entry.kind());
  key->dtype = static_cast<DType>(entry.dtype());
  key->axes = static_cast<uint8_t>(entry.global_shape_size());
  key->is_grid = entry.is_grid();
  key->allow_shape_mismatch = entry.allow_shape_mismatch();
  if (key->kind == KeyKind::kObject && (key->dtype != DType::kUInt8 || key->is_grid || key->allow_shape_mismatch))
    return FormatError(entry.name(), "an object has a dtype, a grid or flags of a tensor");
  const int fragments = key->is_grid ? key->axes : 0;
  if (entry.fragments_size() != fragments)
    return FormatError(entry.name(), "fragments: " + Both(entry.fragments_size(), fragments));
  for (int axis = 0; axis < key->axes; ++axis) {
    const uint64_t count = key->is_grid ? entry.fragments(axis) : 1;
    if (entry.global_shape(axis) > kNumberMax || count < 1 || count > kNumberMax)
      return FormatError(entry.name(), "axis " + std::to_string(axis) + ": global length " +
                                           std::to_string(entry.global_shape(axis)) + " in " + std::to_string(count) +
                                           " fragments is not within 63 bits");
    key->global_shape[axis] = static_cast<int64_t>(entry.global_shape(axis));
    if (key->is_grid) key->fragments[axis] = static_cast<int64_t>(count);
  }
  return std::nullopt;
}

// That every column has as many numbers as pieces and holders ask for.
std::optional<LayoutError> CheckColumns(const wire::Key& entry, uint64_t axes) {
  const uint64_t pieces = entry.piece_count();
  if (pieces == 0) return FormatError(entry.name(), "has no piece");
  const uint64_t flat = entry.flat_start_size() == 0 ? 0 : pieces;
  uint64_t holders = 0;
  for (uint32_t count : entry.holder_count()) holders += count;
  const struct {
    const char* name;
    int found;
    uint64_t wanted;
  } columns[] = {{"lo", entry.lo_size(), pieces * axes},
                 {"length", entry.length_size(), pieces * axes},
                 {"flat_start", entry.flat_start_size(), flat},
                 {"flat_length", entry.flat_length_size(), flat},
                 {"holder_count", entry.holder_count_size(), pieces},
                 {"rank", entry.rank_size(), holders},
                 {"replica", entry.replica_size(), holders}};
  for (const auto& column : columns)
    if (static_cast<uint64_t>(column.found) != column.wanted)
      return FormatError(entry.name(), std::string(column.name) + ": " + Both(column.found, column.wanted));
  return std::nullopt;
}

class PieceReader {
 public:
  PieceReader(const wire::Key& entry, const KeyMeta& key, Metadata* out, MetadataWriter* writer)
      : entry_(entry), key_(key), out_(*out), writer_(*writer) {}

  std::optional<LayoutError> Read(int index) {
    int64_t coordinates[2 * kAxesMax];
    FlatRange flat = kNotFlat;
    if (!ReadBox(index, coordinates) || !ReadFlat(index, &flat))
      return Error(index, "a number that is not within 63 bits");
    if (key_.kind == KeyKind::kObject && (flat != kNotFlat || !IsOneElement(coordinates)))
      return Error(index, "an object's place is not one element of its grid");
    if (index > 0) {
      const PieceView before = out_.Piece(key_, out_.piece_count() - 1);
      if (ComparePieces(before.lo, before.flat, coordinates, flat, key_.axes) >= 0)
        return Error(index, "it does not come after the piece before it");
    }
    writer_.AddPiece(coordinates, flat);
    return ReadHolders(index);
  }

 private:
  bool ReadBox(int index, int64_t* coordinates) const {
    for (int axis = 0; axis < key_.axes; ++axis) {
      const uint64_t lo = entry_.lo(index * key_.axes + axis), length = entry_.length(index * key_.axes + axis);
      if (lo > kNumberMax || length > kNumberMax - lo) return false;
      coordinates[axis] = static_cast<int64_t>(lo);
      coordinates[key_.axes + axis] = static_cast<int64_t>(lo + length);
    }
    return true;
  }

  bool ReadFlat(int index, FlatRange* flat) const {
    if (entry_.flat_start_size() == 0 || entry_.flat_start(index) == 0)
      return entry_.flat_length_size() == 0 || entry_.flat_length(index) == 0;
    const uint64_t start = entry_.flat_start(index) - 1, length = entry_.flat_length(index);
    if (start > kNumberMax || length > kNumberMax - start) return false;
    *flat = {static_cast<int64_t>(start), static_cast<int64_t>(start + length)};
    return true;
  }

  bool IsOneElement(const int64_t* coordinates) const {
    for (int axis = 0; axis < key_.axes; ++axis)
      if (coordinates[key_.axes + axis] - coordinates[axis] != 1) return false;
    return true;
  }

  std::optional<LayoutError> ReadHolders(int index) {
    const uint32_t count = entry_.holder_count(index);
    if (count == 0) return Error(index, "nobody holds it");
    Holder before{-1, 0};
    for (uint32_t i = 0; i < count; ++i, ++next_holder_) {
      const uint32_t rank = entry_.rank(next_holder_), replica = entry_.replica(next_holder_);
      if (rank >= static_cast<uint32_t>(kRanksMax) || replica >= out_.replica_ids.size())
        return Error(index, "rank " + std::to_string(rank) + " with replica id number " + std::to_string(replica) +
                                "; the limits are " + std::to_string(kRanksMax) + " and " +
                                std::to_string(out_.replica_ids.size()));
      const Holder holder{static_cast<int32_t>(rank), replica};
      if (holder < before) return Error(index, "its holders are not in order");
      writer_.AddHolder(holder);
      before = holder;
    }
    return std::nullopt;
  }

  LayoutError Error(int index, const std::string& what) const {
    return FormatError(key_.name, "piece " + std::to_string(index) + ": " + what);
  }

  const wire::Key& entry_;
  const KeyMeta key_;
  Metadata& out_;
  MetadataWriter& writer_;
  int next_holder_ = 0;
};

}  // namespace

LayoutError FormatError(const std::string& key, const std::string& what) {
  const std::string name = key.empty() ? "" : PrintableKey(key);
  return {ErrorCode::kFormat, name, {}, {}, key.empty() ? "metadata: " + what : "metadata of '" + name + "': " + what};
}

std::optional<LayoutError> DecodeKey(const wire::Key& entry, Metadata* out, MetadataWriter* writer) {
  KeyMeta key;
  if (auto error = DecodeHead(entry, &key)) return error;
  if (auto error = CheckColumns(entry, key.axes)) return error;
  if (!out->keys.empty() && Compare(out->keys.back(), key) >= 0)
    return FormatError(key.name, "it does not come after '" + out->keys.back().name + "'");
  writer->AddKey(key);
  bool any_flat = entry.flat_start_size() == 0;
  for (uint64_t start : entry.flat_start()) any_flat |= start != 0;
  if (!any_flat) return FormatError(key.name, "flat ranges are listed where none is flattened");
  PieceReader reader(entry, out->keys.back(), out, writer);
  for (int i = 0; i < static_cast<int>(entry.piece_count()); ++i)
    if (auto error = reader.Read(i)) return error;
  return std::nullopt;
}

}  // namespace kintsugi::layout
