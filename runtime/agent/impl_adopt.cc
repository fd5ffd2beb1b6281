// What the trainer's thread does for state that outlives its process: when it is offered, marked as unfinished, adopted.
#include <string>

#include "runtime/agent/impl.h"

namespace kintsugi {

// Again where it has moved.
void Agent::Impl::OfferState() {
  if (options_.state_fd < 0) return;  // no launcher, or one that holds nothing
  if (!running_) keeper_.Open(UniqueFd(options_.state_fd));
  const std::string why = keeper_.Offer(has_mirrored_);
  if (!why.empty())
    warning_ = "when its process is lost its state cannot be adopted, all of it will be streamed: " + why;
}

void Agent::Impl::KeepObjects(Step step) {
  if (keeper_.keeps_objects()) keeper_.KeepObjects(step, service_->PackMirrored(step));
}

void Agent::Impl::MarkState(core::StateMark mark) {
  words().state_mark.store(static_cast<uint64_t>(mark), std::memory_order_seq_cst);
}

// Before REPAIR and ROLLBACK: whoever is killed within them must not leave half a state for a whole one.
Status Agent::Impl::PrepareState(const core::RunOnTrainer& run) {
  const core::PhaseOrder& order = run.order;
  if (order.phase == core::Phase::kRollback) MarkState(core::StateMark::kWriting);
  if (order.phase != core::Phase::kRepair) return Status::Ok();
  bool adopts = false, receives = order.rung == Rung::kReload;
  for (const RepairMove& move : order.moves)
    if (move.destination == options_.rank) (move.adopt ? adopts : receives) = true;
  if (receives) MarkState(core::StateMark::kWriting);
  if (!adopts) return Status::Ok();
  if (!has_mirrored_) return keeper_.Adopt(order.step, nullptr);
  return keeper_.Adopt(
      order.step, [&](const std::vector<uint8_t>& objects) { return service_->TakeMirrored(order.step, objects); });
}

}  // namespace kintsugi
