#include "runtime/agent/activities.h"

#include <algorithm>
#include <string>

namespace kintsugi {
namespace {

constexpr size_t kMost = 16;

}  // namespace

Status Activities::Begin(Activity activity, Duration limit) {
  if (activity == Activity::kNone) return {StatusCode::kInvalidArgument, "BeginActivity: 'none' is no activity"};
  if (open_.size() >= kMost)
    return {StatusCode::kFailedPrecondition,
            "BeginActivity: " + std::to_string(kMost) + " activities are open: is EndActivity missing?"};
  const TimePoint now = SteadyClock::SteadyNow();
  const TimePoint around = open_.empty() ? TimePoint::Max() : open_.back().deadline;
  open_.push_back({activity, now, limit < TimePoint::Max() - now ? std::min(around, now + limit) : around});
  Tell();
  return Status::Ok();
}

Status Activities::End() {
  if (open_.empty()) return {StatusCode::kFailedPrecondition, "EndActivity without BeginActivity"};
  open_.pop_back();
  Tell();
  return Status::Ok();
}

// The page has what the trainer was in until its next pass tells a place.
void Activities::Clear() {
  open_.clear();
  clock_.Set({TimePoint(), TimePoint::Max()});
}

void Activities::Tell() {
  clock_.Set(open_.empty() ? ActivityClock::Reading{TimePoint(), TimePoint::Max()}
                           : ActivityClock::Reading{open_.front().began, open_.back().deadline});

  std::atomic<uint64_t>& progress = page_.words().progress;
  progress.store(WithActivity(progress.load(std::memory_order_relaxed), now()), std::memory_order_relaxed);
}

}  // namespace kintsugi
