// Activities: what the trainer has said that it is busy with, for the launcher that reads its page.
//
// Threads: the trainer's.
// Ownership: its own; the page outlives it.
// Errors: kInvalidArgument, kFailedPrecondition: Begin and End do not match.
#pragma once

#include <vector>

#include "runtime/agent/rank_page.h"
#include "runtime/base/train_phase.h"

namespace kintsugi {

class Activities {
 public:
  explicit Activities(RankPage& page) : page_(page) {}

  Status Begin(Activity activity);
  Status End();
  // The loop was left, by an exception or a status, with all that was open.
  void Clear() { open_.clear(); }
  Activity now() const { return open_.empty() ? Activity::kNone : open_.back(); }

 private:
  void Tell();

  RankPage& page_;
  std::vector<Activity> open_;  // the innermost last
};

}  // namespace kintsugi
