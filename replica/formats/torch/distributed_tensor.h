// A DTensor as it is pickled: one rank's part of a tensor, and which part that is.
//
// What: the local tensor, and the spec beside it: a mesh of ranks with this rank's coordinate, and for each dimension of
// the mesh a placement. Sharded over several dimensions of the mesh, an axis is cut by one after the other: from left to
// right, as shard_order says, or where a _StridedShard's split factor puts it (FSDP2 over tensor parallelism).
// Errors: kInvalidArgument, of a kind that is not read (partial sums, parts that are no range); kDataLoss, it contradicts
// itself. Both name file, byte and value.
// Threads: pure. Source: torch/distributed/tensor/{placement_types,_dtensor_spec,_utils}.py and
// torch/distributed/device_mesh.py (2.13, read); older ones keep the mesh as a tensor.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "replica/formats/torch/archive.h"

namespace kintsugi::formats::torch {

struct Mesh {
  std::vector<int64_t> shape, coordinate;
  std::vector<int64_t> ranks;  // that have a place in it, ascending
  int64_t rank = 0;            // whose coordinate it is
};

struct DistributedTensor {
  PickledTensor local;
  Shape shape, offset;  // of the whole, and where the part begins
  std::shared_ptr<const Mesh> mesh;
};

// By what it calls.
bool IsDistributedTensor(const pickle::Tree& tree, pickle::NodeId id);

// Those of one archive, which outlives it. Tensors share their meshes.
class DistributedTensors {
 public:
  explicit DistributedTensors(const Archive& archive) : archive_(archive) {}
  // REQUIRES: IsDistributedTensor.
  Result<DistributedTensor> Read(pickle::NodeId id);

 private:
  const Archive& archive_;
  std::map<pickle::NodeId, std::shared_ptr<const Mesh>> meshes_;
};

// How an axis is cut over one dimension of a mesh.
struct AxisPlacement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int64_t axis = 0;
  int64_t split_factor = 1;  // kStridedShard
};
struct Span {
  int64_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};
// The rank's range of an axis of `length` elements that has `local` of them there. `order`: the mesh's dimensions that cut
// it, first to last, where that is said. kInvalidArgument where it is no range, or two readings of the placements differ.
Result<Span> RangeOf(int64_t axis, int64_t length, int64_t local, const std::vector<AxisPlacement>& placements,
                     const std::vector<int64_t>& mesh, const std::vector<int64_t>& coordinate,
                     const std::optional<std::vector<int64_t>>& order);

}  // namespace kintsugi::formats::torch
