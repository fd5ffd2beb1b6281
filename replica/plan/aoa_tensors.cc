#include "replica/plan/aoa_tensors.h"

#include "runtime/base/check.h"

namespace kintsugi::plan {

aoa::Tensors TensorsOf(const layout::Metadata& metadata) {
  aoa::Tensors tensors;
  for (const layout::KeyMeta& key : metadata.keys) {
    if (key.kind == layout::KeyKind::kObject) continue;
    aoa::Tensor& tensor = tensors[key.name];
    tensor.shape.assign(key.global_shape.begin(), key.global_shape.begin() + key.axes);
    tensor.dtype = key.dtype;
    layout::Box before;
    for (uint32_t i = 0; i < key.piece_count; ++i) {
      const layout::Box box = metadata.Piece(key, key.first_piece + i).box();
      if (i > 0 && box == before) continue;  // another flat range of it: equal boxes are neighbours
      before = box;
      aoa::Shard shard;
      for (int axis = 0; axis < box.axes; ++axis) {
        shard.offset.push_back(box.lo[axis]);
        shard.shape.push_back(box.length(axis));
      }
      tensor.shards.push_back(std::move(shard));
    }
  }
  return tensors;
}

aoa::IndexBox AoaBox(const layout::Box& box) {
  aoa::IndexBox result(static_cast<size_t>(box.axes));
  for (int axis = 0; axis < box.axes; ++axis) result[static_cast<size_t>(axis)] = {box.lo[axis], box.hi[axis]};
  return result;
}

layout::Box LayoutBox(const aoa::IndexBox& box) {
  KINTSUGI_CHECK(box.size() <= layout::kAxesMax, "a box has at most " + std::to_string(layout::kAxesMax) + " axes");
  layout::Box result;
  result.axes = static_cast<int>(box.size());
  for (int axis = 0; axis < result.axes; ++axis) {
    result.lo[axis] = box[static_cast<size_t>(axis)].begin;
    result.hi[axis] = box[static_cast<size_t>(axis)].end;
  }
  return result;
}

}  // namespace kintsugi::plan
