#include "callbacks/state/snapshot_slots.h"

#include "runtime/base/check.h"

namespace kintsugi {

int SnapshotSlots::Begin(Step step, Step keep) {
  KINTSUGI_CHECK(step.value() > 0 && step != keep, "a snapshot of step " + step.ToString() + " that is to be kept");
  making_.reset();
  // The step itself first, should it be there from before a rollback; else what is empty or older.
  int slot = Find(step).value_or(whole_[0] <= whole_[1] ? 0 : 1);
  if (whole_[static_cast<size_t>(slot)] == keep && keep.value() > 0) slot = 1 - slot;
  whole_[static_cast<size_t>(slot)] = Step();
  making_ = {slot, step};
  return slot;
}

void SnapshotSlots::Finish() {
  KINTSUGI_CHECK(making_.has_value(), "no snapshot is in the making");
  whole_[static_cast<size_t>(making_->slot)] = making_->step;
  making_.reset();
}

std::optional<int> SnapshotSlots::Find(Step step) const {
  for (size_t slot = 0; slot < whole_.size(); ++slot)
    if (step.value() > 0 && whole_[slot] == step) return static_cast<int>(slot);
  return std::nullopt;
}

std::optional<int> SnapshotSlots::making() const { return making_ ? std::optional(making_->slot) : std::nullopt; }

}  // namespace kintsugi
