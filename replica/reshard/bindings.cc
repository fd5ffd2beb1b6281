#include "replica/reshard/bindings.h"

#include <algorithm>

namespace kintsugi::reshard {
namespace {

using layout::Holder;
using layout::KeyMeta;
using layout::Metadata;
using layout::PieceView;

std::string Place(int32_t rank, const ShardedTensor& shard) {
  return "rank " + std::to_string(rank) + ": " + Describe(shard);
}

Status CheckMemory(int32_t rank, const ShardedTensor& shard) {
  const uint64_t bytes = shard.ByteCount();
  if (shard.memory.size_bytes == bytes && (shard.memory.data != nullptr || bytes == 0)) return Status::Ok();
  return {StatusCode::kInvalidArgument, Place(rank, shard) + " has " + std::to_string(bytes) + " bytes, its memory " +
                                            std::to_string(shard.memory.size_bytes)};
}

// A piece's coordinates and flat range as one list, in the order in which metadata sorts them.
std::vector<int64_t> OrderOf(const PieceView& piece) {
  std::vector<int64_t> order(piece.lo, piece.lo + 2 * piece.axes);
  order.push_back(piece.flat.start);
  order.push_back(piece.flat.stop);
  return order;
}

struct Found {
  const KeyMeta* key = nullptr;
  uint32_t piece = 0;
};

Result<Found> Locate(const Metadata& metadata, int32_t rank, const ShardedTensor& shard) {
  std::vector<int64_t> wanted = shard.global_offset;
  for (size_t axis = 0; axis < shard.global_offset.size() && axis < shard.local_shape.size(); ++axis)
    wanted.push_back(shard.global_offset[axis] + shard.local_shape[axis]);
  const FlatRange flat = shard.flattened_range.value_or(layout::kNotFlat);
  wanted.push_back(flat.start);
  wanted.push_back(flat.stop);
  for (const KeyMeta& key : metadata.Find(shard.key)) {
    if (key.kind != layout::KeyKind::kTensor || key.dtype != shard.dtype || 2u * key.axes + 2 != wanted.size())
      continue;
    uint32_t low = 0, high = key.piece_count;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (OrderOf(metadata.Piece(key, key.first_piece + middle)) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == key.piece_count) continue;
    const PieceView piece = metadata.Piece(key, key.first_piece + low);
    const auto is_ours = [&](const Holder& holder) { return holder.rank == rank; };
    if (OrderOf(piece) == wanted && std::any_of(piece.holders.begin(), piece.holders.end(), is_ours))
      return Found{&key, key.first_piece + low};
  }
  return Status(StatusCode::kNotFound, Place(rank, shard) + " is not in the metadata");
}

}  // namespace

Result<uint32_t> FindPiece(const Metadata& metadata, int32_t rank, const ShardedTensor& shard) {
  KINTSUGI_ASSIGN_OR_RETURN(const Found found, Locate(metadata, rank, shard));
  return found.piece;
}

Status BindSource(const Metadata& source, int32_t rank, const ShardedTensor& shard, Bindings* bindings) {
  KINTSUGI_ASSIGN_OR_RETURN(const uint32_t piece, FindPiece(source, rank, shard));
  KINTSUGI_RETURN_IF_ERROR(CheckMemory(rank, shard));
  bindings->sources[piece] = shard.memory;
  return Status::Ok();
}

Status BindTarget(const Metadata& source, const Metadata& target, int32_t rank, const ShardedTensor& shard,
                  Bindings* bindings) {
  KINTSUGI_ASSIGN_OR_RETURN(const Found found, Locate(target, rank, shard));
  KINTSUGI_RETURN_IF_ERROR(CheckMemory(rank, shard));
  const auto stored = source.Find(shard.key);
  if (stored.size() != 1)
    return {StatusCode::kNotFound, Place(rank, shard) + " is asked for, but the source has " +
                                       std::to_string(stored.size()) + " keys of this name"};
  const Destination whole =
      PlainDestination(target.Piece(*found.key, found.piece), shard.dtype, stored[0].dtype, shard.memory);
  bindings->targets[found.piece].copies.push_back({whole});
  return Status::Ok();
}

}  // namespace kintsugi::reshard
