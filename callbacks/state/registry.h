// StateRegistry: the tensors and objects a rank has registered as repairable.
//
// Threads: written by the trainer's thread before Seal; read by any thread afterwards.
// Ownership: holds descriptors, never the memory behind them.
// Errors: a mistake is kInvalidArgument and names keys and both values; adding after Seal is kFailedPrecondition.
// Invariants: no key twice; no two tensors share a byte of memory; no object without a kind's functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/result.h"

namespace kintsugi {

// Everything of a tensor but its memory, in the form that ranks exchange to compare what they registered.
struct TensorSummary {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape global_shape, local_shape, global_offset;
  std::optional<FlatRange> flattened_range;
  int layout = 0;
  bool operator==(const TensorSummary&) const = default;
};

struct ObjectSummary {
  std::string key;
  ObjectKind kind = ObjectKind::kDerived;
  bool operator==(const ObjectSummary&) const = default;
};

struct RegistrySummary {
  std::vector<TensorSummary> tensors;  // sorted by key
  std::vector<ObjectSummary> objects;  // sorted by key
};

class KINTSUGI_EXPORT StateRegistry {
 public:
  Status AddTensor(const ShardedTensor& tensor);
  Status AddObject(const ShardedObject& object);
  // No registration after this.
  void Seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  // Sorted by key, so that every rank walks its state in the same order.
  const std::map<std::string, ShardedTensor>& tensors() const { return tensors_; }
  const std::map<std::string, ShardedObject>& objects() const { return objects_; }

  // Tensors of one layout, in key order.
  std::vector<const ShardedTensor*> TensorsOfLayout(int layout) const;
  uint64_t ByteCount() const;
  RegistrySummary Summary() const;

  // Bytes of all mirrored objects at this moment, in key order, each framed by key and length.
  std::vector<uint8_t> CaptureMirrored() const;
  // Takes the mirrored objects back to what CaptureMirrored gave. kDataLoss when the bytes do not fit the registry.
  Status RestoreMirrored(const std::vector<uint8_t>& bytes) const;
  bool HasMirrored() const;

 private:
  std::map<std::string, ShardedTensor> tensors_;
  std::map<std::string, ShardedObject> objects_;
  std::map<uintptr_t, std::string> by_address_;  // start of each non-empty tensor's memory -> key
  bool sealed_ = false;
};

// What two members of one replica group registered for `layout` must be equal: the message names the key, both ranks
// and both values.
KINTSUGI_EXPORT Status CompareReplicas(int layout, Rank rank_a, const RegistrySummary& a, Rank rank_b,
                                       const RegistrySummary& b);

}  // namespace kintsugi
