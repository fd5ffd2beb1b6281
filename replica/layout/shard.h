// Constructors of shards: from what a trainer knows to a descriptor whose box, flat range and grid are proven.
//
// What: each gives a ShardedTensor (callbacks/state/descriptors.h) or the first rule it breaks. In the descriptor the
// box has all global axes; prepended ones have length 1 in it. Constructors speak of the local tensor, which lacks
// them.
// Units: elements; memory in bytes.
// Errors: LayoutError, with the key and the box as region; no rank, which the caller knows (MetadataBuilder adds it).
// Threads: pure functions.
// Ownership: memory is passed on, never touched.
// Source of the rules: `dist_checkpointing.mapping` of Megatron-core (ShardedTensor, from_rank_offsets, narrow) and
// `flex_checkpoint.dcp.sharded_weight` of Paddle (shard_weight). Where those have holes (a prepended axis off its
// grid, a shard past the end, an axis named twice or not there, a division by an empty axis) there is an error here.
#pragma once

#include <span>

#include "callbacks/state/descriptors.h"
#include "replica/layout/error.h"

namespace kintsugi::layout {

// A local tensor. Memory may be absent (data null and no size) where only metadata is made.
struct TensorData {
  DType dtype = DType::kFloat32;
  Shape shape;
  Memory memory;
};

// All that a shard says about itself.
struct ShardSpec {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape local_shape;                  // without prepended axes
  Shape global_shape, global_offset;  // with them
  Shape axis_fragmentations;          // pieces per global axis; empty: irregular
  int prepend_axis_num = 0;
  std::vector<int64_t> replica_id;
  std::optional<FlatRange> flattened_range;  // of the local shape, row-major
  bool allow_shape_mismatch = false;
};

// The general constructor. With a flat range the data has one axis: the range's elements.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> MakeShard(const ShardSpec& spec, const TensorData* data = nullptr);

// Axis (prepended ones are counted first), which fragment of it this is, and how many there are.
struct RankOffset {
  int axis = 0;
  int64_t offset = 0;
  int64_t fragments = 1;
};

struct ShardOptions {
  std::vector<int64_t> replica_id;
  int prepend_axis_num = 0;
  bool allow_shape_mismatch = false;
};

// A shard of a regular grid: the data is one cell. Axes without an offset are not cut; a prepended axis has length 1
// then.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> FromRankOffsets(const std::string& key, const TensorData& data,
                                                                   std::span<const RankOffset> offsets,
                                                                   const ShardOptions& options = {});

// Paddle's shard_weight: equal pieces of one axis over the ranks of a group; without an axis the weight is replicated
// (global shape = local shape), and the caller's replica ids say which copy is the main one.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> FromShardWeight(const std::string& key, const TensorData& data,
                                                                   std::optional<int> axis, int64_t group_rank,
                                                                   int64_t group_size,
                                                                   const ShardOptions& options = {});

// The part of `box` that a flattened optimizer holds: elements [start, stop) of the box in row-major order, with their
// own memory. The start is the real one, never a sum over lower ranks: that pieces tile their parameter is checked over
// all ranks.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> Flatten(const ShardedTensor& box, FlatRange range,
                                                           const Memory& memory = {});

// The layout that results when every rank keeps [start, start + length) of its own axis `axis` (prepended ones not
// counted): a smaller global tensor, not a slice of it. Global length and offset shrink by length / local length and
// must do so exactly. Memory stays where the kept part is contiguous; otherwise it must be absent, and the caller binds
// packed memory.
KINTSUGI_EXPORT Result<ShardedTensor, LayoutError> Narrow(const ShardedTensor& shard, int axis, int64_t start,
                                                          int64_t length);

// The same of a flattened shard: what of its range is kept, as ranges of the narrowed box, ascending, each in one piece of
// the shard's memory. None where nothing is kept; more than one where `axis` is not the first whose length is not 1, which
// is joined to one for a shard without memory.
KINTSUGI_EXPORT Result<std::vector<ShardedTensor>, LayoutError> NarrowFlat(const ShardedTensor& shard, int axis,
                                                                           int64_t start, int64_t length);

// Coordinates of the shard in its grid: for a prepended axis the offset itself, else offset / local length, 0 where
// that length is 0.
KINTSUGI_EXPORT Shape GridCoordinates(const ShardedTensor& shard);

// The shard's shape as the trainer's tensor has it: without prepended axes.
KINTSUGI_EXPORT Shape OwnShape(const ShardedTensor& shard);

// 0, tuples of zeros and the empty tuple.
KINTSUGI_EXPORT bool IsMainReplica(std::span<const int64_t> replica_id);

}  // namespace kintsugi::layout
