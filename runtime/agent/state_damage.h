// StateDamage: injected damage of registered memory, on the host and on a device.
//
// Threads: the trainer's.
// Ownership: of nothing.
// Errors: none; memory that cannot be reached stays as it is.
#pragma once

#include <string>
#include <vector>

#include "runtime/agent/registration.h"
#include "runtime/device/damage_map.h"
#include "runtime/inject/injection.h"

namespace kintsugi {

class StateDamage {
 public:
  explicit StateDamage(const Registration& registered) : registered_(registered) {}

  // The tensors that an injection means.
  std::vector<std::string> KeysOf(const Injection& injection) const;
  // Their whole pages, which is what a device takes out of use; empty where there is none.
  std::vector<AddressRange> PagesOf(const Injection& injection) const;
  void Poison(const Injection& injection) const;
  void Flip(const Injection& injection) const;

 private:
  bool FlipOne(const ShardedTensor& tensor) const;

  const Registration& registered_;
};

}  // namespace kintsugi
