#include "runtime/launcher/run/run_times.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

void RunTimes::OnBegan(Step step, TimePoint at) {
  if (!marks_.empty() && step <= marks_.back().first) return;
  if (exact_ == kExactMax) Condense();
  marks_.emplace_back(step, at);
  ++exact_;
  KINTSUGI_CHECK(exact_ <= kExactMax && exact_ <= marks_.size(), "more marks are exact than there are");
}

// The older half of those that are exact joins the others.
void RunTimes::Condense() {
  const size_t old = marks_.size() - exact_;
  size_t kept = old;
  for (size_t i = old; i < old + kExactMax / 2; ++i)
    if (kept == 0 || marks_[i].first.value() >= marks_[kept - 1].first.value() + stride_) marks_[kept++] = marks_[i];
  while (kept > kMarksMax - kExactMax) {
    stride_ *= 2;
    size_t thinned = 1;
    for (size_t i = 1; i < kept; ++i)
      if (marks_[i].first.value() >= marks_[thinned - 1].first.value() + stride_) marks_[thinned++] = marks_[i];
    kept = thinned;
  }
  marks_.erase(marks_.begin() + static_cast<ptrdiff_t>(kept),
               marks_.begin() + static_cast<ptrdiff_t>(old + kExactMax / 2));
  exact_ -= kExactMax / 2;
  KINTSUGI_CHECK(marks_.size() <= kMarksMax, "marks grow with the steps");
}

void RunTimes::OnResuming(Step step, TimePoint now) {
  if (!started_at_) {
    started_at_ = std::max(now, begin_);
    counted_until_ = *started_at_;
    saving_.Forget();  // what was before is the start's
    paused_.Forget();
  }
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), step,
                                      [](Step wanted, const auto& mark) { return wanted < mark.first; });
  thrown_away_from_.reset();
  if (after != marks_.end()) thrown_away_from_ = after->second;
  exact_ -= std::min(exact_, static_cast<size_t>(marks_.end() - after));
  marks_.erase(after, marks_.end());
}

void RunTimes::OnIncident(TimePoint fault_at, TimePoint resumed_at) {
  const TimePoint down_from = std::max(fault_at, counted_until_);
  const TimePoint lost_from = std::max(std::min(thrown_away_from_.value_or(down_from), down_from), counted_until_);
  thrown_away_from_.reset();
  if (resumed_at <= lost_from) return;
  const TimePoint until = std::max(resumed_at, down_from);
  KINTSUGI_CHECK(until >= counted_until_ && lost_from <= down_from, "an instant is counted twice");
  saving_.End(down_from, counted_until_);
  paused_.End(down_from, counted_until_);
  // A save in what is thrown away is part of that; a pause was no work, and stays one.
  saving_.TakeOut(saving_.SettleAfter(lost_from));
  redone_ += down_from - lost_from - paused_.SettleAfter(lost_from);
  down_ += until - down_from;
  counted_until_ = until;
}

TimeAccount RunTimes::Account(TimePoint end, std::optional<TimePoint> standing_since) const {
  if (standing_since) {
    RunTimes as_if_over = *this;
    as_if_over.OnIncident(*standing_since, end);
    return as_if_over.Account(end);
  }
  TimeAccount account;
  account.total = std::max(end - begin_, Duration());
  Duration& until_all_step = before_.total > Duration() ? account.down : account.starting;
  until_all_step = std::min(started_at_.value_or(end), end) - begin_;
  if (started_at_) {
    account.down += down_;
    account.redone = redone_;
    account.saving = saving_.Total(end, counted_until_);
    account.paused = paused_.Total(end, counted_until_);
  }
  return account += before_;
}

}  // namespace kintsugi
