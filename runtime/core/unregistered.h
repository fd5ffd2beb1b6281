// Unregistered: tensors that a trainer has taken out of its state while the run goes on.
//
// A key goes on all ranks of the run: who did not say so itself is told with its next order, and so is a process that
// comes later and registers what its program always registers.
// Threads: none; owned by Registrations.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "callbacks/state/summary.h"

namespace kintsugi::core {

class Unregistered {
 public:
  // True: one of them was not known before.
  bool Add(const std::vector<std::string>& keys);
  bool empty() const { return keys_.empty(); }
  bool Has(const std::string& key) const { return keys_.count(key) > 0; }
  // Sorted.
  std::vector<std::string> keys() const { return {keys_.begin(), keys_.end()}; }
  // `registry` lists none of them any more.
  void TakeFrom(RegistrySummary* registry) const;
  // The first one that `registry` still lists; empty: none.
  std::string FirstIn(const RegistrySummary& registry) const;

 private:
  std::set<std::string> keys_;
};

}  // namespace kintsugi::core
