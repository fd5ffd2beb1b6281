#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "replica/layout/codec.h"
#include "replica/layout/metadata.pb.h"
#include "replica/layout/protobuf_fields.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

using google::protobuf::io::CodedOutputStream;

void FillPieces(const Metadata& metadata, const KeyMeta& key, wire::Key* out) {
  bool any_flat = false;
  for (uint32_t i = 0; i < key.piece_count; ++i) any_flat |= metadata.flat[key.first_piece + i] != kNotFlat;
  for (uint32_t i = 0; i < key.piece_count; ++i) {
    const PieceView piece = metadata.Piece(key, key.first_piece + i);
    KINTSUGI_CHECK(!piece.holders.empty() && piece.holders.size() <= UINT32_MAX, "a piece has holders");
    for (int axis = 0; axis < piece.axes; ++axis) {
      out->add_lo(static_cast<uint64_t>(piece.lo[axis]));
      out->add_length(static_cast<uint64_t>(piece.hi[axis] - piece.lo[axis]));
    }
    if (any_flat) {
      out->add_flat_start(piece.is_flat() ? static_cast<uint64_t>(piece.flat.start) + 1 : 0);
      out->add_flat_length(static_cast<uint64_t>(piece.flat.stop - piece.flat.start));
    }
    out->add_holder_count(static_cast<uint32_t>(piece.holders.size()));
    for (const Holder& holder : piece.holders) {
      out->add_rank(static_cast<uint32_t>(holder.rank));
      out->add_replica(holder.replica);
    }
  }
}

void Fill(const Metadata& metadata, const KeyMeta& key, wire::Key* out) {
  out->set_name(key.name);
  out->set_kind(static_cast<uint32_t>(key.kind));
  out->set_dtype(static_cast<uint32_t>(key.dtype));
  for (int axis = 0; axis < key.axes; ++axis) {
    out->add_global_shape(static_cast<uint64_t>(key.global_shape[axis]));
    if (key.is_grid) out->add_fragments(static_cast<uint64_t>(key.fragments[axis]));
  }
  out->set_is_grid(key.is_grid);
  out->set_allow_shape_mismatch(key.allow_shape_mismatch);
  out->set_piece_count(key.piece_count);
  FillPieces(metadata, key, out);
}

void Fill(const LayoutError& error, wire::Refusal* out) {
  out->set_code(static_cast<uint32_t>(error.code));
  out->set_key(error.key);
  for (int32_t rank : error.ranks) out->add_ranks(rank);
  out->set_has_region(error.region.has_value());
  if (error.region)
    for (int axis = 0; axis < error.region->axes; ++axis) {
      out->add_lo(error.region->lo[axis]);
      out->add_hi(error.region->hi[axis]);
    }
  out->set_message(error.message);
}

}  // namespace

std::string Encode(const Metadata& metadata) {
  wire::GlobalMetadata head;
  head.set_version(kMetadataVersion);
  head.set_digest(DigestOf(metadata));
  int32_t before = 0;
  for (int32_t rank : metadata.ranks) {
    KINTSUGI_CHECK(rank >= before, "ranks ascend");
    head.add_rank_gap(static_cast<uint32_t>(rank - before));
    before = rank;
  }
  for (uint32_t i = 0; i < metadata.replica_ids.size(); ++i) {
    const auto id = metadata.replica_ids[i];
    head.add_replica_id_length(static_cast<uint32_t>(id.size()));
    for (int64_t number : id) head.add_replica_id(number);
  }
  for (const LayoutError& refusal : metadata.refusals) Fill(refusal, head.add_refusals());

  KINTSUGI_CHECK(head.ByteSizeLong() <= INT32_MAX, "ranks and replica ids fit a message of protobuf's");
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  head.SerializeToCodedStream(&out);
  // Field 7 by hand: one key is built, written and forgotten at a time.
  wire::Key entry;
  for (const KeyMeta& key : metadata.keys) {
    entry.Clear();
    Fill(metadata, key, &entry);
    out.WriteTag(TagOf(wire::GlobalMetadata::kKeysFieldNumber, kLengthDelimited));
    // What is larger protobuf would leave out, and say so on standard error alone.
    KINTSUGI_CHECK(entry.ByteSizeLong() <= INT32_MAX, "a key fits a message of protobuf's");
    out.WriteVarint64(entry.ByteSizeLong());
    entry.SerializeToCodedStream(&out);
  }
  KINTSUGI_CHECK(!out.HadError(), "what is written to a string arrives there");
  out.Trim();
  return bytes;
}

}  // namespace kintsugi::layout
