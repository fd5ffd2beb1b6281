#include "runtime/agent/parking.h"

#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using core::GateState;
using core::GateWord;
using Outcome = core::TrainerParked::Outcome;

core::FaultKind KindOf(FaultClass fault_class) {
  switch (fault_class) {
    case FaultClass::kException:
      return core::FaultKind::kException;
    case FaultClass::kCommError:
      return core::FaultKind::kCommError;
    case FaultClass::kMemoryError:
      break;
  }
  return core::FaultKind::kMemoryHigh;
}

}  // namespace

void Parking::LeaveLoop(const Status& status, LoopEnd end, const std::string& signature) {
  const GateWord now = gate_.Word();
  if (now.state == GateState::kUpdating) gate_.MoveTo(GateState::kTorn, now.step);
  if (now.state == GateState::kAtGate) gate_.MoveTo(GateState::kCommitted, now.step.Previous());
  if (reports_.leaves()) {
    (void)inbox_.AwaitEnd();
    return;
  }
  const Status settled = commits_.Settle();
  if (!settled.ok() && !reports_.told()) return Park(Outcome::kFault, Classify(settled));
  // What was changed is of no step: nobody may take it for the state of this one.
  if (end == LoopEnd::kChanged) page_.Mark(core::StateMark::kWriting);
  if (end == LoopEnd::kChanged) return Park(Outcome::kFinishedChanged);
  if (status.ok()) return Park(Outcome::kFinished);
  const bool threw = end == LoopEnd::kThrew || end == LoopEnd::kRefused;
  const bool interrupted = status.code() == StatusCode::kInterrupted || status.code() == StatusCode::kCancelled;
  if (!threw && reports_.told()) return Park(Outcome::kInterrupted);
  if (!threw && interrupted && gate_.Word().locked) return Park(Outcome::kInterrupted);
  core::FaultReport fault = Classify(status);
  // Interrupted with no incident in sight: something was aborted under the trainer.
  if (!threw && interrupted) fault.kind = core::FaultKind::kCommError;
  if (end == LoopEnd::kRefused) fault.kind = core::FaultKind::kRefused;
  if (fault.kind == core::FaultKind::kException && !IsInjected()) fault.signature = signature;
  if (fault.kind == core::FaultKind::kMemoryHigh) page_.Mark(core::StateMark::kWriting);
  Park(Outcome::kFault, std::move(fault));
}

core::FaultReport Parking::Classify(const Status& status) const {
  KINTSUGI_CHECK(!status.ok(), "what is no error is no fault");
  core::FaultReport fault;
  fault.kind = status.code() == StatusCode::kCommFailure ? core::FaultKind::kCommError : core::FaultKind::kException;
  if (const FaultClass* const known = registered_.FaultClassOf(status.message())) fault.kind = KindOf(*known);
  fault.text = status.message();
  fault.step = page_.begun();
  fault.in_update = gate_.Word().state == GateState::kTorn;
  fault.since = IsInjected() ? InjectedAt() : SteadyClock::SteadyNow();
  return fault;
}

TimePoint Parking::InjectedAt() const {
  return TimePoint(Duration(static_cast<int64_t>(page_.words().PresentFaultNs())));
}

bool Parking::IsInjected() const { return InjectedAt() > TimePoint(); }

void Parking::Park(Outcome outcome, core::FaultReport fault) {
  KINTSUGI_CHECK(registered_.begun(), "a thread parks before its guard has begun");
  const GateWord now = gate_.Word();
  thread_.Post(core::TrainerParked{outcome, now, std::move(fault), offer_.is_ahead_at(now.step)});
}

}  // namespace kintsugi
