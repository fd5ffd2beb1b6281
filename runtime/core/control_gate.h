// ControlGate: the gate before an update, over the control plane: it opens once every rank has entered it.
//
// Threads: none; pure.
// Invariants: gates open in ascending order; a gate is open only if each rank has entered it, or a later one, since the
// last Close.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/crew.h"

namespace kintsugi::core {

class ControlGate {
 public:
  explicit ControlGate(int seats) : entered_(static_cast<size_t>(seats)), awaited_(entered_.size()) {}

  enum class Answer {
    kWait,
    kOpenAlready,  // said again after a lost connection: the answer was lost with it
    kOpens,        // for everybody, as far as newest_open
  };
  Answer Enter(Rank rank, Step step);
  // The newest one that opened since the last Close.
  std::optional<Step> newest_open() const { return open_; }
  // Its process is gone: the one after it enters anew.
  void Forget(Rank rank);
  // Nobody is in a gate any more; from now on it opens for these.
  void Close(const Crew& crew);

 private:
  std::optional<Step>& At(Rank rank);

  std::vector<std::optional<Step>> entered_;  // by rank: the newest
  size_t awaited_;  // so many take part
  std::optional<Step> open_;
  std::map<Step, size_t> counts_;  // of `entered_`
  size_t ranks_entered_ = 0;       // of them: how many are there
};

}  // namespace kintsugi::core
