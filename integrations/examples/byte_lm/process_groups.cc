#include "integrations/examples/byte_lm/process_groups.h"

namespace kintsugi::byte_lm {

void ProcessGroups::Arm() {
  std::lock_guard lock(mutex_);
  aborted_ = false;
}

void ProcessGroups::Abort() {
  {
    std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

Status ProcessGroups::AwaitAbort() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return aborted_; });
  return {StatusCode::kCancelled, "the groups were aborted"};
}

}  // namespace kintsugi::byte_lm
