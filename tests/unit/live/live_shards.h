// Numbers: a float tensor cut along one axis, each element its own number in the whole tensor.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/layout/box.h"

namespace kintsugi::live {

struct Cut {
  std::string key;
  Shape shape;    // of the whole
  int axis = -1;  // below 0: not cut
  int64_t parts = 1;
};

class Numbers {
 public:
  Numbers(Cut cut, int64_t part) : cut_(std::move(cut)) {
    local_ = cut_.shape;
    offset_.assign(local_.size(), 0);
    if (cut_.axis >= 0) {
      local_[static_cast<size_t>(cut_.axis)] /= cut_.parts;
      offset_[static_cast<size_t>(cut_.axis)] = part * local_[static_cast<size_t>(cut_.axis)];
    }
    const layout::Box box = layout::BoxAt(offset_, local_), whole = layout::WholeBox(cut_.shape);
    for (int64_t i = 0; i < *Volume(box); ++i) values.push_back(static_cast<float>(Ravel(whole, Unravel(box, i))));
  }

  ShardedTensor shard() {
    ShardedTensor tensor;
    tensor.key = cut_.key;
    tensor.global_shape = cut_.shape;
    tensor.local_shape = local_;
    tensor.global_offset = offset_;
    tensor.allow_shape_mismatch = mismatch;
    tensor.memory = {.data = values.data(), .size_bytes = values.size() * sizeof(float)};
    return tensor;
  }

  std::vector<float> values;
  bool mismatch = false;

 private:
  Cut cut_;
  Shape local_, offset_;
};

}  // namespace kintsugi::live
