#include "runtime/sim/trainer_faults.h"

namespace kintsugi::sim {

bool TrainerFaults::Strike(const PlannedFault& fault, Process* p) {
  if (fault.type == FaultType::kSourceLost) return StrikeSource();
  if (!p) return false;
  switch (fault.type) {
    case FaultType::kThrow:
      if (!p->core) return false;
      p->troubles.throw_next = true;
      return true;
    case FaultType::kThrowInUpdate:
      if (!p->core) return false;
      world_.losses.Lose(fault.rank);
      p->troubles.throw_in_update = true;
      return true;
    case FaultType::kHang:
      return Hang(fault, p);
    case FaultType::kCommError:
      if (p->group.value() == 0) return false;
      collectives_.BreakGroup(p->group);
      return true;
    case FaultType::kHandlerFails:
      world_.losses.Lose(fault.rank);
      p->troubles.failing_handlers = fault.count;
      return true;
    case FaultType::kHandlerHangs:
      world_.losses.Lose(fault.rank);
      p->troubles.hanging_handlers = fault.count;
      return true;
    case FaultType::kHandlerNonsense:
      world_.losses.Lose(fault.rank);
      p->troubles.nonsense_handlers = fault.count;
      return true;
    default:
      return false;
  }
}

// Its own work stands still: whatever it waits for does not come, or comes when the step is stopped.
bool TrainerFaults::Hang(const PlannedFault& fault, Process* p) {
  if (p->at != TrainerAt::kForward && p->at != TrainerAt::kUpdate) return false;
  // One that a stop ends does not begin under a stop.
  if (!fault.lasting && p->Word().locked) return false;
  fault.lasting ? world_.losses.Lose(fault.rank) : world_.losses.Disturb(fault.rank);
  p->troubles.hung = true;
  p->troubles.hung_for_good = fault.lasting;
  ++p->activity;  // its timer is void
  return true;
}

// The rank that is sending dies.
bool TrainerFaults::StrikeSource() {
  Process* const source = transfers_.SourceIn(world_.core().generation());
  if (!source) return false;
  world_.losses.Lose(source->rank.value());
  processes_.Die(source, "killed by SIGKILL");
  return true;
}

}  // namespace kintsugi::sim
