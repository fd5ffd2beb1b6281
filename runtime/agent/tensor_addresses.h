// TensorAddresses: where registered tensors lie: it may change within a task of the trainer, and counts once that is over.
//
// Threads: Begin, Move, Remove and Settle are the trainer's; the rest is for any. The trainer's thread changes the registry
// in Settle alone, under the mutex, so that it may read it without; any other thread comes through here.
// Ownership: of what moves in the open task; the registry is Registration's.
// Errors: as callbacks/state/relocation.h says; Renew: why the memory cannot be had anew.
// Invariants: between Begin and Settle nobody's memory is replaced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/relocation.h"
#include "runtime/agent/registration.h"
#include "runtime/base/mutex.h"
#include "runtime/device/damage_map.h"

namespace kintsugi {

class TensorAddresses {
 public:
  explicit TensorAddresses(Registration& registered) : registered_(registered) {}

  bool moving() const;
  void Begin();
  Status Move(const ShardedTensor& tensor);
  Status Remove(const std::string& key);
  // All of them at once: `other` is the registry from now on, and holds what that was. Nothing moves.
  void Swap(StateRegistry* other);
  // False: nothing has moved.
  bool Settle();

  bool Holds(const std::string& key) const;
  // Fresh memory for what is damaged, where that is registered tensors and nothing else: their keys; else why not.
  Result<std::vector<std::string>> Renew(const std::vector<AddressRange>& damaged);

 private:
  Registration& registered_;
  mutable Mutex mutex_;
  std::optional<Relocation> relocation_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
