// Aliases: other names of registered tensors. Tied weights (an embedding that is the output matrix too) are registered,
// held and repaired once; what is saved has both names, and what is resumed from may have either.
//
// Threads: written by the trainer's thread before the registry is sealed; read by any thread afterwards.
// Errors: kInvalidArgument names both keys; kFailedPrecondition after the seal. A refused alias changes nothing.
// Invariants: an alias is no registered key (AddTensor's callers ask CheckFree), and names a tensor, never another alias.
#pragma once

#include <map>
#include <string>

#include "callbacks/state/registry.h"
#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi {

class KINTSUGI_EXPORT Aliases {
 public:
  // One more name of the tensor `key`, which `registry` has.
  Status Add(const std::string& alias, const std::string& key, const StateRegistry& registry);
  // That no alias is called so: before a tensor or an object of this key is registered.
  Status CheckFree(const std::string& key) const;
  // alias -> key.
  const std::map<std::string, std::string>& all() const { return aliases_; }

 private:
  std::map<std::string, std::string> aliases_;
};

}  // namespace kintsugi
