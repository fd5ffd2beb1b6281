#include "replica/aoa/tensors.h"

#include "replica/aoa/box.h"

namespace kintsugi::aoa {
namespace {

std::string CheckShard(const Tensor& tensor, const Shard& shard) {
  const auto name = [&shard] { return "shard " + DescribeShape(shard.shape) + " at " + DescribeShape(shard.offset); };
  if (shard.shape.size() != tensor.shape.size() || shard.offset.size() != tensor.shape.size())
    return name() + " has another number of axes than the tensor's shape " + DescribeShape(tensor.shape);
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    int64_t end = 0;
    if (shard.offset[axis] < 0 || shard.shape[axis] < 0 ||
        __builtin_add_overflow(shard.offset[axis], shard.shape[axis], &end) || end > tensor.shape[axis])
      return name() + " leaves the tensor's shape " + DescribeShape(tensor.shape) + " on axis " + std::to_string(axis);
  }
  return "";
}

std::string CheckTensor(const Tensor& tensor) {
  if (!IsKnown(tensor.dtype)) return "has an unknown type";
  if (!IsRepresentable(tensor.shape)) return "has the impossible shape " + DescribeShape(tensor.shape);
  for (const Shard& shard : tensor.shards)
    if (std::string problem = CheckShard(tensor, shard); !problem.empty()) return problem;
  return "";
}

}  // namespace

Status ValidateTensors(const Tensors& tensors, const std::string& what) {
  for (const auto& [key, tensor] : tensors) {
    if (key.empty()) return {StatusCode::kInvalidArgument, what + ": a tensor without a key"};
    if (const std::string problem = CheckTensor(tensor); !problem.empty())
      return {StatusCode::kInvalidArgument, what + " '" + key + "': " + problem};
  }
  return Status::Ok();
}

}  // namespace kintsugi::aoa
