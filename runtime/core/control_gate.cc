#include "runtime/core/control_gate.h"

#include "runtime/base/check.h"

namespace kintsugi::core {

std::optional<Step>& ControlGate::At(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < entered_.size(),
                 "rank " + rank.ToString() + " is outside the world");
  return entered_[static_cast<size_t>(rank.value())];
}

ControlGate::Answer ControlGate::Enter(Rank rank, Step step) {
  std::optional<Step>& entered = At(rank);
  if (open_ && step <= *open_) return Answer::kOpenAlready;
  int& count = counts_[step];
  if (entered != step) ++count;
  entered = step;
  KINTSUGI_CHECK(static_cast<size_t>(count) <= entered_.size(),
                 "more ranks in the gate of step " + step.ToString() + " than there are");
  if (static_cast<size_t>(count) < entered_.size()) return Answer::kWait;
  counts_.erase(counts_.begin(), counts_.upper_bound(step));
  open_ = step;
  return Answer::kOpens;
}

void ControlGate::Close() {
  entered_.assign(entered_.size(), std::nullopt);
  open_.reset();
  counts_.clear();
}

}  // namespace kintsugi::core
