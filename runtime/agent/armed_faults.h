// ArmedFaults: injected faults that were ordered for this rank and have not struck yet.
//
// Threads: any; any() is one relaxed load, for the trainer's markers.
// Ownership: its own.
// Errors: what is no injection, or another rank's, is left out: the caller that ordered it was told.
// Invariants: a fault is taken once.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/inject/injection.h"

namespace kintsugi {

class ArmedFaults {
 public:
  struct Armed {
    uint32_t id = 0;  // the launcher's
    Injection fault;
  };

  // "ID SPEC", where that is a fault of `rank`.
  void Arm(const std::string& injection, Rank rank);
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The first one of `step` that `is_here` says yes to.
  std::optional<Armed> Take(Step step, const std::function<bool(const Injection&)>& is_here);

 private:
  std::atomic<bool> any_{false};
  Mutex mutex_;
  std::vector<Armed> armed_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
