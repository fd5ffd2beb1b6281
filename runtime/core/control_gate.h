// ControlGate: the gate before an update, over the control plane: it opens once every rank has entered it.
//
// Threads: none; pure.
// Invariants: gates open in ascending order; a gate is open only if each rank has entered it since the last Close.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi::core {

class ControlGate {
 public:
  explicit ControlGate(int world_size) : entered_(static_cast<size_t>(world_size)) {}

  enum class Answer {
    kWait,
    kOpenAlready,  // said again after a lost connection: the answer was lost with it
    kOpens,        // for everybody
  };
  Answer Enter(Rank rank, Step step);
  // Its process is gone: whoever comes after it enters anew.
  void Forget(Rank rank) { At(rank).reset(); }
  // Nobody is in a gate any more.
  void Close();

 private:
  std::optional<Step>& At(Rank rank);

  std::vector<std::optional<Step>> entered_;  // by rank: the newest
  std::optional<Step> open_;                  // the newest one that opened
  std::map<Step, int> counts_;                // ranks that have entered a later one
};

}  // namespace kintsugi::core
