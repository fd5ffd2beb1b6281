#include "runtime/core/pause_rounds.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// A pause that many steps ahead is not overtaken any more.
constexpr int kMarginBits = 10;
// So many rounds aim at the newest step itself.
constexpr int kRoundsWithoutMargin = 2;

}  // namespace

size_t PauseRounds::IndexOf(Rank rank) const {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < begun_.size(),
                 "rank " + rank.ToString() + " is outside the world");
  return static_cast<size_t>(rank.value());
}

Step PauseRounds::Arm(Step begun, const Crew& crew) {
  const Step before = rounds_ > 0 ? at_ : Step();
  at_ = std::max(begun, Step(1));  // 0 says that there is none
  for (const Step step : begun_) at_ = std::max(at_, step);
  if (++rounds_ > kRoundsWithoutMargin)
    at_ = Step(at_.value() + (uint64_t{1} << std::min(rounds_ - kRoundsWithoutMargin - 1, kMarginBits)));
  KINTSUGI_CHECK(at_ >= before, "a pause moved back from step " + before.ToString() + " to step " + at_.ToString());
  open_.assign(open_.size(), false);
  for (Rank rank : crew.ranks()) open_[IndexOf(rank)] = true;
  open_count_ = crew.size();
  return at_;
}

PauseRounds::Answer PauseRounds::Take(Rank rank, Step begun) {
  const size_t r = IndexOf(rank);
  if (!open_[r]) return Answer::kNotAwaited;
  KINTSUGI_CHECK(open_count_ > 0, "more answers to a pause than ranks");
  open_[r] = false;
  --open_count_;
  begun_[r] = begun;
  if (open_count_ > 0) return Answer::kOthersToCome;
  const bool past = std::any_of(begun_.begin(), begun_.end(), [this](Step step) { return step > at_; });
  return past ? Answer::kOvertaken : Answer::kStored;
}

void PauseRounds::Drop() {
  open_.assign(open_.size(), false);
  open_count_ = 0;
  begun_.assign(begun_.size(), Step());
}

}  // namespace kintsugi::core
