// Relocation: registered tensors that lie elsewhere, or are gone, once a task of the trainer's is over.
//
// What may change is where a tensor lies; key, type, shapes and layout are compared by ranks and stay. A place must be
// free when it is taken: no tensor lies there, moved or not. What a tensor has left is free, also where the tensor is
// gone.
// Threads: one; nobody reads the registry's memory meanwhile.
// Ownership: the registry outlives it.
// Errors: kNotFound: no tensor has this key; kInvalidArgument names keys and both values. A refused move changes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "callbacks/state/registry.h"

namespace kintsugi {

class KINTSUGI_EXPORT Relocation {
 public:
  explicit Relocation(const StateRegistry& registry);

  // The tensor will lie in `tensor.memory`; all else that it says is as it was registered.
  Status Move(const ShardedTensor& tensor);
  // The tensor is no part of the state any more.
  Status Remove(const std::string& key);
  // What is still registered, every tensor in its new place; sealed.
  StateRegistry Moved() const;

 private:
  const Memory& PlaceOf(const std::string& key) const;
  const std::string* WhoLiesIn(const Memory& memory) const;

  const StateRegistry& registry_;
  std::map<std::string, Memory> moved_;  // by key
  std::set<std::string> removed_;
  std::map<uintptr_t, std::string> by_address_;  // start of each tensor's memory, where that is not empty -> key
};

}  // namespace kintsugi
