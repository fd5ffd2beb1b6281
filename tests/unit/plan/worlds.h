// Layouts that tests of the planner share.
#pragma once

#include "replica/plan/planner.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::plan {

inline ShardedTensor Piece(const std::string& key, Shape global, Shape offset, Shape local,
                           std::optional<FlatRange> flat = {}) {
  ShardedTensor tensor = layout::Piece(key, std::move(global), std::move(offset), std::move(local));
  tensor.flattened_range = flat;
  return tensor;
}

class Side {
 public:
  Side& Add(int32_t rank, const ShardedTensor& tensor) { return builder_.AddTensor(rank, tensor), *this; }
  Side& Add(int32_t rank, const ShardedObject& object) { return builder_.AddObject(rank, object), *this; }
  layout::Metadata Build() { return builder_.Build(); }

 private:
  layout::MetadataBuilder builder_;
};

// One tensor as equal cells, cell i on rank i and on rank i + cells, and so on for as many copies as there are.
inline layout::Metadata Grid(const std::string& key, const Shape& global, const Shape& pieces, int copies = 1) {
  Side side;
  int32_t cells = 1;
  for (int64_t count : pieces) cells *= static_cast<int32_t>(count);
  const layout::Box grid = layout::WholeBox(pieces);
  for (int32_t rank = 0; rank < cells * copies; ++rank) {
    const layout::Point at = Unravel(grid, rank % cells);
    Shape offset, local;
    for (size_t axis = 0; axis < pieces.size(); ++axis) {
      local.push_back(global[axis] / pieces[axis]);
      offset.push_back(at[axis] * local.back());
    }
    ShardedTensor tensor = Piece(key, global, offset, local);
    tensor.replica_id = {rank / cells};
    side.Add(rank, tensor);
  }
  return side.Build();
}

// One tensor of one axis per key, flat over all ranks in nearly equal parts, as ZeRO-1 cuts it.
inline layout::Metadata Flattened(const std::string& key, const Shape& global, int32_t ranks) {
  Side side;
  const int64_t volume = *layout::Product(global);
  for (int32_t rank = 0; rank < ranks; ++rank)
    side.Add(rank, Piece(key, global, Shape(global.size(), 0), global,
                         FlatRange{volume * rank / ranks, volume * (rank + 1) / ranks}));
  return side.Build();
}

}  // namespace kintsugi::plan
