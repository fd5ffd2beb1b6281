// Flatten and Narrow: shards made from shards.
#include <algorithm>

#include "callbacks/state/key.h"
#include "replica/layout/shard.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

LayoutError Error(ErrorCode code, const ShardedTensor& shard, const std::string& what) {
  return {code,
          shard.key,
          {},
          BoxAt(shard.global_offset, shard.local_shape),
          "tensor '" + PrintableKey(shard.key) + "': " + what};
}

ShardSpec SpecOf(const ShardedTensor& shard) {
  return {.key = shard.key,
          .dtype = shard.dtype,
          .local_shape = OwnShape(shard),
          .global_shape = shard.global_shape,
          .global_offset = shard.global_offset,
          .axis_fragmentations = shard.axis_fragmentations,
          .prepend_axis_num = shard.prepend_axis_num,
          .replica_id = shard.replica_id,
          .flattened_range = shard.flattened_range,
          .allow_shape_mismatch = shard.allow_shape_mismatch};
}

// value * numerator / denominator where that is exact.
std::optional<int64_t> Scale(int64_t value, int64_t numerator, int64_t denominator) {
  KINTSUGI_CHECK(0 <= numerator && numerator <= denominator && denominator > 0, "what is kept is a part of the whole");
  const __int128 product = static_cast<__int128>(value) * numerator;
  if (product % denominator != 0) return std::nullopt;
  return static_cast<int64_t>(product / denominator);
}

// The kept part of the shard's memory: where axes before `axis` have length 1 it is one piece.
Result<Memory, LayoutError> NarrowMemory(const ShardedTensor& shard, size_t axis, int64_t start, int64_t length) {
  Memory memory = shard.memory;
  if (memory.data == nullptr || length == shard.local_shape[axis]) return memory;
  for (size_t before = 0; before < axis; ++before)
    if (shard.local_shape[before] != 1)
      return Error(ErrorCode::kNarrow, shard,
                   "what is kept of axis " + std::to_string(axis) + " does not lie in one piece, because axis " +
                       std::to_string(before) + " has length " + std::to_string(shard.local_shape[before]) +
                       ": narrow the descriptor without memory and bind packed memory");
  KINTSUGI_CHECK(memory.size_bytes % static_cast<uint64_t>(shard.local_shape[axis]) == 0, "memory is whole rows");
  const uint64_t step = memory.size_bytes / static_cast<uint64_t>(shard.local_shape[axis]);
  const uint64_t skipped = step * static_cast<uint64_t>(start);
  memory.data = static_cast<uint8_t*>(memory.data) + skipped;
  memory.size_bytes = step * static_cast<uint64_t>(length);
  if (memory.shared_fd >= 0) memory.shared_offset += skipped;
  return memory;
}

}  // namespace

Result<ShardedTensor, LayoutError> Flatten(const ShardedTensor& box, FlatRange range, const Memory& memory) {
  if (box.flattened_range) return Error(ErrorCode::kFlatRange, box, "is flattened already: " + Describe(box));
  ShardSpec spec = SpecOf(box);
  spec.flattened_range = range;
  if (range.stop < range.start) return MakeShard(spec);
  const TensorData data{box.dtype, {range.stop - range.start}, memory};
  return MakeShard(spec, &data);
}

Result<ShardedTensor, LayoutError> Narrow(const ShardedTensor& shard, int axis, int64_t start, int64_t length) {
  if (shard.flattened_range)
    return Error(ErrorCode::kNarrow, shard, "is flattened: NarrowFlat gives its pieces: " + Describe(shard));
  const int own_axes = static_cast<int>(shard.local_shape.size()) - shard.prepend_axis_num;
  if (axis < 0 || axis >= own_axes)
    return Error(ErrorCode::kAxis, shard,
                 "axis " + std::to_string(axis) + " is not there: the local tensor has " + std::to_string(own_axes));
  const size_t at = static_cast<size_t>(axis + shard.prepend_axis_num);
  const int64_t local = shard.local_shape[at];
  if (start < 0 || length < 0 || length > local || start > local - length)
    return Error(ErrorCode::kNarrow, shard,
                 "axis " + std::to_string(axis) + ": " + std::to_string(length) + " elements from " +
                     std::to_string(start) + " are not within the local length " + std::to_string(local));
  ShardSpec spec = SpecOf(shard);
  if (local == 0) return MakeShard(spec);
  const auto global = Scale(shard.global_shape[at], length, local),
             offset = Scale(shard.global_offset[at], length, local);
  if (!global || !offset)
    return Error(ErrorCode::kNarrow, shard,
                 "axis " + std::to_string(axis) + ": global length " + std::to_string(shard.global_shape[at]) +
                     " and offset " + std::to_string(shard.global_offset[at]) + " times " + std::to_string(length) +
                     "/" + std::to_string(local) + " are not whole numbers");
  auto memory = NarrowMemory(shard, at, start, length);
  if (!memory.ok()) return memory.error();
  spec.local_shape[static_cast<size_t>(axis)] = length;
  spec.global_shape[at] = *global;
  spec.global_offset[at] = *offset;
  const TensorData data{shard.dtype, spec.local_shape, *memory};
  return MakeShard(spec, &data);
}

Result<std::vector<ShardedTensor>, LayoutError> NarrowFlat(const ShardedTensor& shard, int axis, int64_t start,
                                                           int64_t length) {
  if (!shard.flattened_range)
    return Error(ErrorCode::kNarrow, shard, "is not flattened: that is Narrow's: " + Describe(shard));
  ShardedTensor box = shard;
  box.flattened_range.reset();
  box.memory = {};
  auto narrowed = Narrow(box, axis, start, length);
  if (!narrowed.ok()) return narrowed.error();
  const FlatRange range = *shard.flattened_range;
  const size_t at = static_cast<size_t>(axis + shard.prepend_axis_num);
  int64_t inner = 1;  // elements behind the axis
  for (size_t behind = at + 1; behind < shard.local_shape.size(); ++behind) inner *= shard.local_shape[behind];
  const int64_t row = shard.local_shape[at] * inner, kept = length * inner;  // of one index of the axes before
  std::vector<FlatRange> ranges;                                             // of the narrowed box, ...
  std::vector<int64_t> from;                                                 // ... and their elements of the shard
  for (int64_t outer = row > 0 ? range.start / row : 0; kept > 0 && outer * row < range.stop; ++outer) {
    const int64_t begin = outer * row + start * inner;
    const int64_t first = std::max(begin, range.start), end = std::min(begin + kept, range.stop);
    if (first >= end) continue;
    const FlatRange next{outer * kept + first - begin, outer * kept + end - begin};
    const bool joins = !ranges.empty() && ranges.back().stop == next.start &&
                       (shard.memory.data == nullptr || length == shard.local_shape[at]);
    if (joins) {
      ranges.back().stop = next.stop;
    } else {
      ranges.push_back(next);
      from.push_back(first - range.start);
    }
  }
  std::vector<ShardedTensor> pieces;
  const uint64_t element = DTypeSize(shard.dtype);
  for (size_t i = 0; i < ranges.size(); ++i) {
    Memory memory = shard.memory;
    if (memory.data != nullptr) {
      const uint64_t skipped = static_cast<uint64_t>(from[i]) * element;
      KINTSUGI_CHECK(skipped + static_cast<uint64_t>(ranges[i].stop - ranges[i].start) * element <= memory.size_bytes,
                     "what is kept lies in the shard's memory");
      memory.data = static_cast<uint8_t*>(memory.data) + skipped;
      memory.size_bytes = static_cast<uint64_t>(ranges[i].stop - ranges[i].start) * element;
      if (memory.shared_fd >= 0) memory.shared_offset += skipped;
    }
    auto piece = Flatten(*narrowed, ranges[i], memory);
    if (!piece.ok()) return piece.error();
    pieces.push_back(*std::move(piece));
  }
  return pieces;
}

}  // namespace kintsugi::layout
