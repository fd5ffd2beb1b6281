#include "integrations/examples/byte_lm/state_tensors.h"

#include <utility>

namespace kintsugi::byte_lm {
namespace {

// The pieces of one parameter lie one behind the other: they make one tensor.
struct Stretch {
  size_t parameter = 0, state_begin = 0, local_begin = 0, count = 0;
};

std::vector<Stretch> StretchesOf(const AdamShard& optimizer) {
  std::vector<Stretch> stretches;
  for (const UpdatePiece& piece : optimizer.pieces()) {
    if (!stretches.empty() && stretches.back().parameter == piece.parameter) {
      stretches.back().count += piece.count;
    } else {
      stretches.push_back({piece.parameter, piece.state_begin, piece.local_begin, piece.count});
    }
  }
  return stretches;
}

ShardedTensor TensorOf(const std::string& array, float* values, const Parameter& parameter, const Stretch& stretch,
                       const RankLayout& layout) {
  ShardedTensor tensor;
  tensor.key = "optimizer." + array + "." + parameter.name;
  tensor.dtype = DType::kFloat32;
  tensor.global_shape = parameter.global_shape;
  tensor.local_shape = parameter.local_shape;
  tensor.global_offset = parameter.global_offset;
  if (stretch.count != parameter.count) {
    tensor.flattened_range = FlatRange{static_cast<int64_t>(stretch.local_begin),
                                       static_cast<int64_t>(stretch.local_begin + stretch.count)};
  }
  tensor.replica_id = {parameter.replicated ? layout.tp_rank : 0, layout.replica()};
  tensor.memory.data = values + stretch.state_begin;
  tensor.memory.size_bytes = stretch.count * sizeof(float);
  return tensor;
}

}  // namespace

std::vector<ShardedTensor> StateTensors(const ParameterTable& table, const AdamShard& optimizer,
                                        const RankLayout& layout) {
  const std::pair<const char*, float*> arrays[] = {{"master", optimizer.state().master},
                                                   {"exp_avg", optimizer.state().exp_avg},
                                                   {"exp_avg_sq", optimizer.state().exp_avg_sq}};
  std::vector<ShardedTensor> tensors;
  for (const auto& [array, values] : arrays) {
    for (const Stretch& stretch : StretchesOf(optimizer)) {
      tensors.push_back(TensorOf(array, values, table[stretch.parameter], stretch, layout));
    }
  }
  return tensors;
}

}  // namespace kintsugi::byte_lm
