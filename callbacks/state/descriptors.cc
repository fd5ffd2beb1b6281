#include "callbacks/state/descriptors.h"

#include <limits>

#include "callbacks/state/key.h"

namespace kintsugi {
namespace {

constexpr size_t kDimensionsMax = 8;

// Product of the axes, or nothing when it does not fit 63 bits.
std::optional<int64_t> Product(const Shape& shape) {
  int64_t product = 1;
  // An empty axis makes the tensor empty, however large the axes before it are.
  for (int64_t axis : shape)
    if (axis == 0) return 0;
  for (int64_t axis : shape)
    if (__builtin_mul_overflow(product, axis, &product)) return std::nullopt;
  return product;
}

Status Bad(const ShardedTensor& tensor, const std::string& what) {
  return {StatusCode::kInvalidArgument, "tensor '" + PrintableKey(tensor.key) + "': " + what};
}

Status CheckMemory(const ShardedTensor& t) {
  if (t.memory.size_bytes != t.ByteCount())
    return Bad(t, "memory of " + std::to_string(t.memory.size_bytes) + " bytes, but the shard has " +
                      std::to_string(t.ByteCount()));
  if (t.memory.size_bytes == 0) return Status::Ok();
  if (t.memory.data == nullptr) return Bad(t, "memory is null");
  if (t.memory.size_bytes > std::numeric_limits<uintptr_t>::max() - reinterpret_cast<uintptr_t>(t.memory.data))
    return Bad(t, "memory of " + std::to_string(t.memory.size_bytes) + " bytes runs past the end of the address space");
  switch (t.memory.kind) {
    case MemoryKind::kHeap:
      return Status::Ok();
    case MemoryKind::kShared:
      if (t.memory.shared_fd >= 0) return Status::Ok();
      return Bad(t, "memory is shared but has no descriptor (shared_fd is " + std::to_string(t.memory.shared_fd) + ")");
    case MemoryKind::kDevice:
      if (t.memory.device >= 0) return Status::Ok();
      return Bad(t, "memory is on a device but device number is " + std::to_string(t.memory.device));
  }
  return Bad(t, "memory is of unknown kind " + std::to_string(static_cast<int>(t.memory.kind)));
}

}  // namespace

int64_t ShardedTensor::ElementCount() const {
  if (flattened_range) return flattened_range->stop - flattened_range->start;
  return Product(local_shape).value_or(0);
}

std::string DescribeShape(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string Describe(const ShardedTensor& t) {
  std::string text = PrintableKey(t.key) + " " + std::string(DTypeName(t.dtype)) + " " + DescribeShape(t.local_shape) +
                     " of " + DescribeShape(t.global_shape) + " at " + DescribeShape(t.global_offset);
  if (t.flattened_range)
    text += " flat " + std::to_string(t.flattened_range->start) + ".." + std::to_string(t.flattened_range->stop);
  return text;
}

Status ValidateShard(const ShardedTensor& t) {
  KINTSUGI_RETURN_IF_ERROR(ValidateKey(t.key).Annotate("tensor"));
  if (!IsKnown(t.dtype)) return Bad(t, "is of unknown dtype number " + std::to_string(static_cast<int>(t.dtype)));
  if (t.layout < 0) return Bad(t, "layout " + std::to_string(t.layout) + " is negative: layouts are counted from 0");
  if (t.global_shape.size() > kDimensionsMax)
    return Bad(t, "has " + std::to_string(t.global_shape.size()) + " dimensions; the limit is " +
                      std::to_string(kDimensionsMax));
  if (t.local_shape.size() != t.global_shape.size() || t.global_offset.size() != t.global_shape.size())
    return Bad(t, "dimensions differ: global shape " + DescribeShape(t.global_shape) + ", local shape " +
                      DescribeShape(t.local_shape) + ", offset " + DescribeShape(t.global_offset));
  for (size_t axis = 0; axis < t.global_shape.size(); ++axis) {
    const int64_t global = t.global_shape[axis], local = t.local_shape[axis], offset = t.global_offset[axis];
    if (global < 0 || local < 0 || offset < 0 || local > global || offset > global - local)
      return Bad(t, "axis " + std::to_string(axis) + ": offset " + std::to_string(offset) + " + local length " +
                        std::to_string(local) + " is outside the global length " + std::to_string(global));
  }
  const auto elements = Product(t.local_shape);
  if (!elements || !Product(t.global_shape)) return Bad(t, "has more elements than 63 bits can count");
  if (t.flattened_range && (t.flattened_range->start < 0 || t.flattened_range->stop < t.flattened_range->start ||
                            t.flattened_range->stop > *elements))
    return Bad(t, "flattened range " + std::to_string(t.flattened_range->start) + ".." +
                      std::to_string(t.flattened_range->stop) + " is outside its box of " + std::to_string(*elements) +
                      " elements");
  if (static_cast<uint64_t>(t.ElementCount()) > std::numeric_limits<uint64_t>::max() / DTypeSize(t.dtype))
    return Bad(t, "has more bytes than 64 bits can count");
  return Status::Ok();
}

Status Validate(const ShardedTensor& t) {
  KINTSUGI_RETURN_IF_ERROR(ValidateShard(t));
  return CheckMemory(t);
}

}  // namespace kintsugi
