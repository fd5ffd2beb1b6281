#include <algorithm>

#include "tests/bench/reshard_bench_world.h"

namespace kintsugi::bench {
namespace {

constexpr int64_t kTensors = 16;

ShardedTensor Cut(int64_t tensor, const Shape& global, const Shape& offset, const Shape& local) {
  ShardedTensor shard;
  shard.key = "layers." + std::to_string(tensor) + ".weight";
  shard.global_shape = global;
  shard.global_offset = offset;
  shard.local_shape = local;
  return shard;
}

// Part `part` of `parts` along one axis.
ShardedTensor Slice(int64_t tensor, const Shape& global, size_t axis, int64_t part, int64_t parts) {
  Shape offset(2, 0), local = global;
  local[axis] = global[axis] / parts;
  offset[axis] = part * local[axis];
  return Cut(tensor, global, offset, local);
}

// Columns a power of two, so that rows of a second-axis part have 16 / parts KiB.
Shape TensorShape(int64_t bytes) { return {bytes / kTensors / 4 / 4096, 4096}; }

void AddWanted(ReshardLayout* layout) {
  for (const auto& shards : layout->target)
    for (const ShardedTensor& shard : shards) layout->wanted_bytes += static_cast<int64_t>(shard.ByteCount());
}

}  // namespace

ReshardLayout TensorParallel(int64_t bytes) {
  ReshardLayout layout;
  layout.name = "tp4-to-tp2xdp2";
  layout.ranks = 4;
  layout.source.resize(4);
  layout.target.resize(4);
  const Shape shape = TensorShape(bytes);
  for (int64_t t = 0; t < kTensors; ++t)
    for (int64_t r = 0; r < 4; ++r) {
      const size_t axis = static_cast<size_t>(t % 2), rank = static_cast<size_t>(r);
      layout.source[rank].push_back(Slice(t, shape, axis, r, 4));
      layout.target[rank].push_back(Slice(t, shape, axis, r % 2, 2));
      layout.target[rank].back().replica_id = {r / 2};
    }
  AddWanted(&layout);
  return layout;
}

ReshardLayout ZeroOne(int64_t bytes) {
  ReshardLayout layout;
  layout.name = "zero8-to-zero6";
  layout.ranks = 8;
  layout.source.resize(8);
  layout.target.resize(8);
  const Shape shape = TensorShape(bytes);
  const int64_t each = shape[0] * shape[1], all = each * kTensors;
  const auto cut = [&](int64_t parts, auto* side) {
    for (int64_t r = 0; r < parts; ++r)
      for (int64_t t = 0; t < kTensors; ++t) {
        ShardedTensor shard = Cut(t, shape, {0, 0}, shape);
        shard.flattened_range = FlatRange{std::clamp(all * r / parts - t * each, int64_t{0}, each),
                                          std::clamp(all * (r + 1) / parts - t * each, int64_t{0}, each)};
        if (shard.ElementCount() > 0) (*side)[static_cast<size_t>(r)].push_back(shard);
      }
  };
  cut(8, &layout.source);
  cut(6, &layout.target);
  AddWanted(&layout);
  return layout;
}

}  // namespace kintsugi::bench
