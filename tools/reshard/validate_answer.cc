#include "tools/reshard/validate_answer.h"

#include "tools/report/text.h"
#include "tools/reshard/json_text.h"
#include "tools/reshard/table.h"

namespace kintsugi::reshard {
namespace {

constexpr size_t kTensorsShown = 100;

int64_t BytesOf(const layout::KeyMeta& key) {
  return Volume(key.Whole()).value_or(0) * static_cast<int64_t>(DTypeSize(key.dtype));
}

void AppendHeld(const layout::Metadata& metadata, std::string* out) {
  for (const layout::KeyMeta& key : metadata.keys)
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const layout::PieceView piece = metadata.Piece(key, i);
      const layout::Box box = piece.box();
      layout::Point lengths{};
      for (int axis = 0; axis < box.axes; ++axis) lengths[axis] = box.length(axis);
      const auto axes = static_cast<size_t>(box.axes);
      for (const layout::Holder& holder : piece.holders) {
        *out += out->back() == '[' ? "\n" : ",\n";
        *out += "{\"rank\":" + std::to_string(holder.rank) + ",\"key\":" + Quoted(key.name) + ",\"global_shape\":";
        AppendNumbers<int64_t>({key.global_shape.data(), axes}, out);
        *out += ",\"offset\":";
        AppendNumbers<int64_t>({piece.lo, axes}, out);
        *out += ",\"shape\":";
        AppendNumbers<int64_t>({lengths.data(), axes}, out);
        *out += ",\"flat\":";
        *out += piece.is_flat() ? "[" + std::to_string(piece.flat.start) + "," + std::to_string(piece.flat.stop) + "]"
                                : "null";
        *out += ",\"replica_id\":";
        AppendNumbers(metadata.replica_ids[holder.replica], out);
        *out += "}";
      }
    }
}

int64_t TotalOf(const layout::Metadata& metadata) {
  int64_t bytes = 0;
  for (const layout::KeyMeta& key : metadata.keys)
    if (__builtin_add_overflow(bytes, BytesOf(key), &bytes)) return INT64_MAX;
  return bytes;
}

}  // namespace

std::string ValidateJson(const layout::Metadata& metadata, bool list) {
  std::string text = "{\"ok\":true,\"tensors\":" + std::to_string(metadata.keys.size()) +
                     ",\"shards\":" + std::to_string(metadata.piece_count()) +
                     ",\"holders\":" + std::to_string(metadata.holders.size()) +
                     ",\"bytes\":" + std::to_string(TotalOf(metadata));
  if (list) {
    text += ",\"held\":[";
    AppendHeld(metadata, &text);
    text += "]";
  }
  return text + "}";
}

std::string ValidateTable(const layout::Metadata& metadata) {
  std::string text = "Right: " + Counted(metadata.keys.size(), "tensor", "tensors") + " in " +
                     Counted(metadata.piece_count(), "shard", "shards") + ", held " +
                     Counted(metadata.holders.size(), "time", "times") + "; " +
                     FormatBytes(static_cast<uint64_t>(TotalOf(metadata))) +
                     ", each element once by main replicas.\n\n";
  Table table({"tensor", "dtype", "shape", "shards", "bytes"});
  for (size_t i = 0; i < std::min(kTensorsShown, metadata.keys.size()); ++i) {
    const layout::KeyMeta& key = metadata.keys[i];
    table.Add({key.name, std::string(DTypeName(key.dtype)),
               DescribeShape(Shape(key.global_shape.begin(), key.global_shape.begin() + key.axes)),
               std::to_string(key.piece_count), FormatBytes(static_cast<uint64_t>(BytesOf(key)))});
  }
  text += table.ToText();
  if (metadata.keys.size() > kTensorsShown)
    text += "and " + std::to_string(metadata.keys.size() - kTensorsShown) + " more tensors\n";
  return text;
}

}  // namespace kintsugi::reshard
