// How torch writes a tensor into a pickle, both ways.
//
// What: a call of a rebuild function in torch._utils over a storage (a persistent id), an element offset, sizes and
// strides. The storage's bytes are the entry data/KEY of the zip.
// Errors: kDataLoss names file, byte and value.
// Threads: pure. Source: torch/_utils.py, torch/serialization.py (2.13, read).
#pragma once

#include <optional>
#include <string>

#include "callbacks/state/descriptors.h"
#include "replica/formats/pickle/tree.h"
#include "replica/formats/pickle/writer.h"

namespace kintsugi::formats::torch {

struct PickledTensor {
  std::string storage;         // key of the entry
  uint64_t storage_bytes = 0;  // as the pickle says
  DType dtype = DType::kFloat32;
  uint64_t offset = 0;  // elements
  Shape shape, strides;
  bool is_conjugated = false, is_negated = false;  // when it is read (changed_view.h)
};

// What a persistent id says of a storage.
struct StoredStorage {
  std::string key;
  std::optional<DType> dtype;  // nothing: untyped, the tensors over it say what they are of
  uint64_t bytes = 0;
  uint64_t view_offset = 0;  // elements; only the oldest files have storages within others
};
// Errors: it is none, or of a class that is not supported.
Result<StoredStorage> StorageOf(const pickle::Tree& tree, pickle::NodeId persistent, const std::string& place);

// Nothing: the node is no tensor. kInvalidArgument: it is one of a kind that is not read (sparse, quantized, a subclass; a
// conjugated or negated view, unless the caller `applies` that); kDataLoss: it contradicts itself.
Result<std::optional<PickledTensor>> TensorOf(const pickle::Tree& tree, pickle::NodeId id, const std::string& place,
                                              bool applies = false);
// Any tensor at all below this value, whatever its kind: a persistent id.
bool HoldsStorage(const pickle::Tree& tree, pickle::NodeId id);

// Row-major, in elements; an axis without any counts as one. At most INT64_MAX, where no tensor with elements has more.
Shape DenseStrides(const Shape& shape);
void WriteTensor(const std::string& storage, DType dtype, const Shape& shape, pickle::PickleWriter* writer);

// "torch.float32" as a global; nothing for a type that torch does not have.
std::optional<DType> DTypeOfGlobal(const pickle::Tree& tree, pickle::NodeId id);

}  // namespace kintsugi::formats::torch
