// StateRegistry: the tensors and objects a rank has registered as repairable.
//
// Threads: written by the trainer's thread before Seal; read by any thread afterwards.
// Ownership: holds descriptors, never the memory behind them.
// Errors: a mistake is kInvalidArgument and names keys and both values; adding after Seal is kFailedPrecondition. A
// refused registration changes nothing.
// Invariants: no key twice; no two tensors share a byte of memory; no object without a kind's functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/device_memory.h"
#include "callbacks/state/mirrored.h"
#include "callbacks/state/summary.h"
#include "runtime/base/result.h"

namespace kintsugi {

// The frames of StateRegistry::CaptureMirrored: one more, and all of them by key. kDataLoss for bytes that are none.
KINTSUGI_EXPORT void AppendMirrored(const std::string& key, const std::vector<uint8_t>& bytes,
                                    std::vector<uint8_t>* out);
KINTSUGI_EXPORT Result<std::map<std::string, std::vector<uint8_t>>> UnpackMirrored(const std::vector<uint8_t>& bytes);

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
  // The same, shared where an object shares them.
  MirroredObjects ShareMirrored() const;
  // Takes the mirrored objects back to what CaptureMirrored gave. kDataLoss when the bytes do not fit the registry:
  // then no object was touched. An object's own refusal comes back with its key.
  Status RestoreMirrored(const std::vector<uint8_t>& bytes) const;
  bool HasMirrored() const;

  // How tensors in device memory are reached; before Seal. Null: they cannot be.
  Status SetDeviceMemory(std::shared_ptr<const DeviceMemory> memory);
  const std::shared_ptr<const DeviceMemory>& device_memory() const { return device_memory_; }
  // The device memory that a tensor lies in; null for one in host memory. kFailedPrecondition names key and device
  // where it lies on a device that nobody handed over.
  Result<const DeviceMemory*> DeviceOf(const ShardedTensor& tensor) const;

 private:
  // That `key` may be registered now.
  Status CheckOpen(std::string_view what, const std::string& key) const;
  // The registered tensor that shares a byte with `memory`, which is not empty; null when none does.
  const ShardedTensor* Overlapping(const Memory& memory) const;

  std::map<std::string, ShardedTensor> tensors_;
  std::map<std::string, ShardedObject> objects_;
  std::map<uintptr_t, std::string> by_address_;  // start of each non-empty tensor's memory -> key
  std::shared_ptr<const DeviceMemory> device_memory_;
  bool sealed_ = false;
};

}  // namespace kintsugi
