#include "runtime/core/slow_ranks.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

constexpr Duration kLateLeast = std::chrono::milliseconds(20);
constexpr int kStepsToBeSlow = 12;
constexpr int kStepsToBeWell = 4;

int64_t Milliseconds(Duration duration) { return duration.count() / 1'000'000; }

}  // namespace

void SlowRanks::Start(size_t awaited) {
  awaited_ = awaited;
  for (Entry& entry : ranks_) entry.arrived.reset();
  arrived_ = 0;
  step_ = 0;
  lateness_.clear();
}

bool SlowRanks::OnPlace(Rank rank, const Progress& place, TimePoint now) {
  if (!place.phase || *place.phase < TrainPhase::kGradientSync || place.activity != Activity::kNone) return false;
  if (place.step < step_) return false;
  if (place.step > step_) {
    // The first one of a step. A step that somebody was not seen in is not judged.
    for (Entry& entry : ranks_) entry.arrived.reset();
    arrived_ = 0;
    step_ = place.step;
  }
  Entry& entry = ranks_[static_cast<size_t>(rank.value())];
  if (entry.arrived) return false;
  entry.arrived = now;
  if (++arrived_ != awaited_) return false;  // more than were awaited: one has just come to the run
  Judge();
  return true;
}

void SlowRanks::Judge() {
  std::vector<TimePoint> instants;
  instants.reserve(ranks_.size());
  for (const Entry& entry : ranks_)
    if (entry.arrived) instants.push_back(*entry.arrived);
  KINTSUGI_CHECK(instants.size() == awaited_,
                 "step " + std::to_string(step_) + " is judged before all were seen in it");
  const auto middle = instants.begin() + static_cast<ptrdiff_t>((instants.size() - 1) / 2);
  std::nth_element(instants.begin(), middle, instants.end());
  lateness_.clear();
  for (Entry& entry : ranks_) {
    lateness_.push_back(entry.arrived ? std::max(*entry.arrived - *middle, Duration()) : Duration());
    entry.late += (lateness_.back() - entry.late) / 8;
  }
}

std::vector<SlowRanks::News> SlowRanks::Take(Duration step_time) {
  std::vector<News> news;
  const Duration limit = std::max(step_time / 5, kLateLeast);
  for (size_t r = 0; r < lateness_.size(); ++r) {
    Entry& entry = ranks_[r];
    entry.late_steps = static_cast<uint16_t>(entry.late_steps << 1 | (lateness_[r] >= limit ? 1 : 0));
    const int steps = std::popcount(entry.late_steps);
    const bool slow = entry.slow ? steps > kStepsToBeWell : steps >= kStepsToBeSlow;
    if (slow == entry.slow) continue;
    entry.slow = slow;
    news.push_back({Rank(static_cast<int32_t>(r)), slow, entry.late, steps});
  }
  lateness_.clear();
  return news;
}

std::optional<Duration> SlowRanks::LateBy(Rank rank) const {
  const Entry& entry = ranks_[static_cast<size_t>(rank.value())];
  return entry.slow ? std::optional(entry.late) : std::nullopt;
}

std::string ToString(const SlowRanks::News& news, Duration step_time) {
  const std::string steps = std::to_string(news.steps) + " of the last 16 steps; a step takes " +
                            std::to_string(Milliseconds(step_time)) + " ms";
  if (!news.slow) return "slow no more: late in " + steps;
  return "slow: " + std::to_string(Milliseconds(news.late)) +
         " ms behind the median rank at the first collective, in " + steps;
}

}  // namespace kintsugi::core
