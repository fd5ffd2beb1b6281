// DamageMap: from damaged addresses to the registered tensors that hold them, and fresh memory for just these.
//
// What: a memory error names addresses. Where all of them lie in registered tensors, these alone are repaired: their
// damaged pages are freed and allocated anew at the same address, and a replica's bytes are streamed into the tensors
// (rung patch). An address that no tensor holds belongs to memory that nobody can repair, so the whole rank counts as
// damaged. FreshMemory: HostFreshMemory works on heap and memfd memory, page by page; a page that a tensor shares with
// other bytes is not touched, and the answer says so. The device's version (cuda_fresh_memory.h) works on CUDA's mapped
// memory.
// Threads: one.
// Units: bytes.
// Errors: FreshMemory: kFailedPrecondition names tensor and address: the caller reports the whole rank; kInternal what
// the system said.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi::device {

struct TensorDamage {
  std::string key;
  std::vector<AddressRange> ranges;  // within its memory, ascending, disjoint
};

struct Damage {
  std::vector<TensorDamage> tensors;       // ascending by key
  std::vector<AddressRange> unregistered;  // parts that no tensor holds
  bool IsPatchable() const { return !tensors.empty() && unregistered.empty(); }
};

// `tensors` by key; memory of different devices does not overlap in one address space.
KINTSUGI_EXPORT Damage FindDamage(const std::map<std::string, ShardedTensor>& tensors,
                                  const std::vector<AddressRange>& damaged);

class KINTSUGI_EXPORT FreshMemory {
 public:
  virtual ~FreshMemory() = default;
  // Gives the range fresh memory at its address; what was in the pages it touches is lost, and reads as zeros or
  // anything.
  virtual Status Replace(const Memory& memory, const AddressRange& range) = 0;
};

KINTSUGI_EXPORT std::unique_ptr<FreshMemory> HostFreshMemory();

// Replaces all damaged pages of the named tensors.
KINTSUGI_EXPORT Status ReplaceDamaged(const std::map<std::string, ShardedTensor>& tensors, const Damage& damage,
                                      FreshMemory& fresh);

}  // namespace kintsugi::device
