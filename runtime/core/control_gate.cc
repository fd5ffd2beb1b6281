#include "runtime/core/control_gate.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {

std::optional<Step>& ControlGate::At(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < entered_.size(),
                 "rank " + rank.ToString() + " is outside the world");
  return entered_[static_cast<size_t>(rank.value())];
}

ControlGate::Answer ControlGate::Enter(Rank rank, Step step) {
  if (open_ && step <= *open_) return Answer::kOpenAlready;
  const std::optional<Step> before = At(rank);
  if (before && step <= *before) return Answer::kWait;
  Forget(rank);
  At(rank) = step;
  ++counts_[step];
  ++ranks_entered_;
  KINTSUGI_CHECK(ranks_entered_ <= awaited_, "more ranks in gates than there are");
  const Step all_entered = counts_.begin()->first;
  if (ranks_entered_ < awaited_ || (open_ && all_entered <= *open_)) return Answer::kWait;
  open_ = all_entered;
  return Answer::kOpens;
}

void ControlGate::Forget(Rank rank) {
  const std::optional<Step> entered = std::exchange(At(rank), std::nullopt);
  if (!entered) return;
  const auto count = counts_.find(*entered);
  KINTSUGI_CHECK(count != counts_.end() && ranks_entered_ > 0, "gate " + entered->ToString() + " was not counted");
  if (--count->second == 0) counts_.erase(count);
  --ranks_entered_;
}

void ControlGate::Close(const Crew& crew) {
  awaited_ = crew.size();
  entered_.assign(entered_.size(), std::nullopt);
  open_.reset();
  counts_.clear();
  ranks_entered_ = 0;
}

}  // namespace kintsugi::core
