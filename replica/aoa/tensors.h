// Tensors: what a stored or a running state consists of, as far as AOA needs it: keys, shapes, types and how each is
// cut.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/dtype.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi::aoa {

// A shard's box is [offset, offset + shape) in global coordinates. Copies of one shard may be listed again.
struct Shard {
  Shape offset;
  Shape shape;
};

struct Tensor {
  Shape shape;
  DType dtype = DType::kFloat32;
  std::vector<Shard> shards;  // empty: one shard, the whole tensor
};

// Ordered, so that every rank walks them alike.
using Tensors = std::map<std::string, Tensor>;

// Known types, representable shapes, shards inside their tensor. kInvalidArgument names the key and both values; `what`
// ("source") stands in front.
KINTSUGI_EXPORT Status ValidateTensors(const Tensors& tensors, const std::string& what);

}  // namespace kintsugi::aoa
