#include "runtime/agent/updates.h"

#include <string>

namespace kintsugi {

using core::GateState;
using core::GateWord;

Status Updates::Begin(Step step) {
  KINTSUGI_RETURN_IF_ERROR(pass_.CheckThread("BeginUpdate"));
  KINTSUGI_RETURN_IF_ERROR(commits_.AwaitNewest());
  KINTSUGI_RETURN_IF_ERROR(refusals_.PassGate(step));
  told_.Send(step);
  // A call that is refused below must not push a good step out of the mirror.
  if (offer_.has_mirrored() && gate_.IsBefore(step))
    KINTSUGI_RETURN_IF_ERROR(offer_.Mirror(step, registered_.registry().ShareMirrored()));
  const bool has_gate = registered_.gate().mode != GateMode::kOff;
  GateWord found;
  if (!gate_.Enter(step, has_gate ? GateState::kAtGate : GateState::kUpdating, &found)) [[unlikely]] {
    if (found.locked) return Interrupted("BeginUpdate");
    return {StatusCode::kFailedPrecondition,
            "BeginUpdate(" + step.ToString() + ") after " + std::string(core::GateStateName(found.state)) + "(" +
                found.step.ToString() + "): updates are numbered one by one, and each is ended before the next"};
  }
  if (!has_gate) return Status::Ok();
  if (const Status passed = PassGate(step); !passed.ok()) [[unlikely]]
    return AwaitVerdict(step);
  if (gate_.Pass(step)) [[likely]]
    return Status::Ok();
  return AwaitVerdict(step);
}

Status Updates::PassGate(Step step) {
  const Registration::TrainerGate& own = registered_.gate();
  if (own.mode == GateMode::kTrainer) {
    const Status passed = own.function(step, own.context);
    // A gate that fails under the lock is the stop handler's doing; without one, nobody would ever bring the verdict.
    if (!passed.ok() && !gate_.Word().locked)
      reports_.Signal({core::FaultKind::kCommError,
                       "the gate of step " + step.ToString() + ": " + passed.message(),
                       {},
                       step,
                       false,
                       SteadyClock::SteadyNow()});
    return passed;
  }
  thread_.Post(core::TrainerAtGate{step});
  return inbox_.AwaitGate(step) ? Status::Ok() : Interrupted("gate");
}

// Held at the gate with all inputs in hand: whether this update happens is decided for all ranks alike.
Status Updates::AwaitVerdict(Step step) { return inbox_.AwaitVerdict(step) ? Status::Ok() : Interrupted("gate"); }

Status Updates::End(Step step, const DeviceFence* update) {
  uint64_t found = 0;
  if (!gate_.Commit(step, update, &found)) [[unlikely]] {
    const GateWord now = GateWord::Unpack(found);
    return {StatusCode::kFailedPrecondition,
            "EndUpdate(" + step.ToString() + ") while the rank is " + std::string(core::GateStateName(now.state)) +
                "(" + now.step.ToString() + "): call BeginUpdate(" + step.ToString() + ") first"};
  }
  if (found & Gate::kLockBit) [[unlikely]]
    return Interrupted("EndUpdate");
  return Status::Ok();
}

// Under a lock too: what is put away here is what a rollback to this step finds.
Status Updates::Refresh(Step step) {
  KINTSUGI_RETURN_IF_ERROR(pass_.CheckThread("RefreshObjects"));
  if (!offer_.has_mirrored()) return Status::Ok();
  const GateWord now = gate_.Word();
  if (now.state != GateState::kCommitted || now.step != step)
    return {StatusCode::kFailedPrecondition,
            "RefreshObjects(" + step.ToString() + ") while the rank is " + std::string(core::GateStateName(now.state)) +
                "(" + now.step.ToString() + "): objects are refreshed at the step that was committed last"};
  offer_.Refresh(step, registered_.registry().ShareMirrored());
  return Status::Ok();
}

}  // namespace kintsugi
