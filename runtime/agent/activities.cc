#include "runtime/agent/activities.h"

#include <string>

namespace kintsugi {
namespace {

constexpr size_t kMost = 16;

}  // namespace

Status Activities::Begin(Activity activity) {
  if (activity == Activity::kNone) return {StatusCode::kInvalidArgument, "BeginActivity: 'none' is no activity"};
  if (open_.size() >= kMost)
    return {StatusCode::kFailedPrecondition,
            "BeginActivity: " + std::to_string(kMost) + " activities are open: is EndActivity missing?"};
  open_.push_back(activity);
  Tell();
  return Status::Ok();
}

Status Activities::End() {
  if (open_.empty()) return {StatusCode::kFailedPrecondition, "EndActivity without BeginActivity"};
  open_.pop_back();
  Tell();
  return Status::Ok();
}

void Activities::Tell() {
  std::atomic<uint64_t>& progress = page_.words().progress;
  progress.store(WithActivity(progress.load(std::memory_order_relaxed), now()), std::memory_order_relaxed);
}

}  // namespace kintsugi
