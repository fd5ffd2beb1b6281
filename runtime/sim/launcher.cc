// Processes: who starts them, how they die, and who hears of it. Mirrors runtime/launcher; where the policy has none, a
// supervisor that knows nothing of ranks' incarnations starts every process again when it has ended.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::Spawn(Rank rank, Incarnation incarnation) {
  // A victim is reaped before its successor starts.
  Process* const before = world_.processes.Newest(rank);
  if (before && before->alive) {
    next_[static_cast<size_t>(rank.value())] = incarnation;
    return processes_.Die(before, "killed by SIGKILL");
  }
  StartProcess(rank, incarnation);
}

void Cluster::OnExited(Process* p, const std::string& cause) {
  if (!launchers_.empty()) return ReapHere(p, cause);
  if (world_.plan.policy.can_spawn) {
    world_.seat().given_up.insert({p->rank, p->incarnation});
    // What an earlier controller asked for while there is no other, a launcher forgets.
    held_.Hold(p, cause);
    TakeHeld(held_.HeldOf(p->rank));
    if (world_.seat().down) return next_[static_cast<size_t>(p->rank.value())].reset();
    Feed(ProcessExited{p->rank, p->incarnation, cause, std::nullopt});
    if (const auto next = std::exchange(next_[static_cast<size_t>(p->rank.value())], std::nullopt))
      StartProcess(p->rank, *next);
  } else if (world_.processes.Newest(p->rank) == p && !world_.seat().ended) {
    StartProcess(p->rank, Incarnation());
  }
}

void Cluster::StartProcess(Rank rank, Incarnation incarnation) {
  if (!Over()) processes_.Start(rank, incarnation, world_.plan.NodeOf(rank.value()));
}

void Cluster::OnBooted(Process* p) {
  agents_.Connect(p);
  Beat(p);
}

// As the page tells it.
Progress Cluster::PlaceOf(Process* p) const { return core::PlaceOf(PackProgress(p->begun, p->PagePhase()), p->Word()); }

void Cluster::Beat(Process* p) {
  ++p->beats;
  if (!launchers_.empty()) {  // its page, which its launcher reads
    if (!Over()) world_.For(p, world_.plan.beat, [this, p] { Beat(p); });
    return;
  }
  const core::Beat beat{p->beats, PlaceOf(p)};
  if (world_.plan.watched)  // through the launcher's page
    Feed(FromAgent{{world_.core().term(), world_.core().generation(), p->rank, p->incarnation}, beat});
  else if (p->core)
    network_.SendUp(p, p->core->generation(), beat);
  if (!world_.seat().ended) world_.For(p, world_.plan.beat, [this, p] { Beat(p); });
}

}  // namespace kintsugi::sim
