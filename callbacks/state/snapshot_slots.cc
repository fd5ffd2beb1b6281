#include "callbacks/state/snapshot_slots.h"

#include "runtime/base/check.h"

namespace kintsugi {

int SnapshotSlots::Begin(Step step, Step keep) {
  KINTSUGI_CHECK(step.value() > 0 && step != keep, "a snapshot of step " + step.ToString() + " that is to be kept");
  making_.reset();
  // The step itself first, should it be there from before a rollback; else what is empty or older.
  int place = Find(step).value_or(whole_[0] <= whole_[1] ? 0 : 1);
  if (whole_[static_cast<size_t>(place)] == keep && keep.value() > 0) place = 1 - place;
  whole_[static_cast<size_t>(place)] = Step();
  making_ = {place, step};
  return place;
}

void SnapshotSlots::Finish() {
  KINTSUGI_CHECK(making_.has_value(), "no snapshot is in the making");
  whole_[static_cast<size_t>(making_->place)] = making_->step;
  making_.reset();
}

std::optional<int> SnapshotSlots::Find(Step step) const {
  for (size_t place = 0; place < whole_.size(); ++place)
    if (step.value() > 0 && whole_[place] == step) return static_cast<int>(place);
  return std::nullopt;
}

std::optional<int> SnapshotSlots::making() const { return making_ ? std::optional(making_->place) : std::nullopt; }

}  // namespace kintsugi
