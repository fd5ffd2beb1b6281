#include "runtime/sim/faults.h"

namespace kintsugi::sim {

Faults::Faults(World& world, Hosts& hosts, NodeFaults& nodes, ProcessFaults& processes, TrainerFaults& trainers,
               MemoryFaults& memory, ConnectionFaults& connections)
    : world_(world),
      hosts_(hosts),
      nodes_(nodes),
      processes_(processes),
      trainers_(trainers),
      memory_(memory),
      connections_(connections) {
  for (const PlannedFault& fault : world_.plan.faults) faults_.push_back({fault});
}

void Faults::Begin() {
  for (size_t i = 0; i < faults_.size(); ++i)
    if (faults_[i].plan.at) world_.In(*faults_[i].plan.at, [this, i] { Strike(faults_[i]); });
}

void Faults::OnPhase(Phase phase) {
  memory_.OnPhase(phase);
  const int nth = ++entered_[phase];
  for (size_t i = 0; i < faults_.size(); ++i)
    if (const PlannedFault& plan = faults_[i].plan; plan.in_phase == phase && plan.nth == nth && !faults_[i].fired)
      world_.In(plan.delay, [this, i] { Strike(faults_[i]); });
}

void Faults::OnTrainerAt(Process* p) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    Fault& fault = faults_[i];
    const PlannedFault& plan = fault.plan;
    if (!fault.armed || fault.fired || plan.in_trainer != p->at || plan.rank != p->rank.value() ||
        plan.step != p->begun)
      continue;
    fault.armed = false;  // once
    // An exception is thrown by the trainer itself, the rest strikes while it is on its way.
    if (plan.type == FaultType::kThrow || plan.type == FaultType::kThrowInUpdate)
      Strike(fault);
    else
      world_.In(plan.delay, [this, i] { Strike(faults_[i]); });
  }
}

void Faults::Strike(Fault& fault) {
  if (fault.fired || hosts_.Over()) return;
  Process* const p = world_.processes.Living(Rank(fault.plan.rank));
  const Phase phase = world_.core().phase();
  const std::string where = p ? std::string(TrainerAtName(p->at)) : "gone";
  const PlannedFault plan = fault.plan;
  // Marked first: what it sets off may come back here.
  fault.fired = true;
  world_.Log("!! " + plan.ToString() + " (" + where + ")");
  const bool done = nodes_.Strike(plan) || processes_.Strike(plan, p) || trainers_.Strike(plan, p) ||
                    memory_.Strike(plan, p) || connections_.Strike(plan, p);
  if (!done) {
    world_.Log("   ... finds nothing to strike");
    fault.fired = false;
    return;
  }
  world_.NoteProgress();
  world_.course.last_struck = world_.Now();
  ++world_.outcome.struck[{phase, plan.type}];
  if (!world_.course.ever_running) world_.course.start_disturbed = true;
}

}  // namespace kintsugi::sim
