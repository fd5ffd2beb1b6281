#include "runtime/core/checkpoint_list.h"

#include <algorithm>

namespace kintsugi::core {

bool CheckpointList::Publish(const Checkpoint& checkpoint) {
  if (!all_.empty() && all_.back() == checkpoint) return false;
  std::erase(all_, checkpoint);  // an older one of that name was written over
  if (all_.size() == kMax) all_.erase(all_.begin());
  all_.push_back(checkpoint);
  return true;
}

void CheckpointList::PutAside(const Checkpoint& checkpoint, const std::string& why) {
  std::erase(all_, checkpoint);
  damage_ = "the checkpoint of step " + checkpoint.step.ToString() + " in " + checkpoint.directory +
            " cannot be used: " + why;
}

void CheckpointList::ForgetFrom(Step step) {
  std::erase_if(all_, [&](const Checkpoint& checkpoint) { return checkpoint.step >= step; });
}

const Checkpoint* CheckpointList::NewestBefore(std::optional<Step> suspect_from) const {
  const auto found = std::find_if(all_.rbegin(), all_.rend(), [&](const Checkpoint& checkpoint) {
    return !suspect_from || checkpoint.step < *suspect_from;
  });
  return found == all_.rend() ? nullptr : &*found;
}

}  // namespace kintsugi::core
