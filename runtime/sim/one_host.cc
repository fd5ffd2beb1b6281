#include "runtime/sim/one_host.h"

namespace kintsugi::sim {

void OneHost::Begin() {
  // Where no launcher starts them, somebody else does.
  for (size_t r = 0; r < world_.size && !world_.plan.policy.can_spawn; ++r)
    Start(Rank(static_cast<int32_t>(r)), Incarnation());
  world_.In(world_.plan.tick, [this] { Tick(); });
}

void OneHost::Tick() {
  controllers_.Feed(core::Tick{});
  if (Over()) return;
  table_checker_.CheckProgress();
  world_.In(world_.plan.tick, [this] { Tick(); });
}

void OneHost::OnPhase(Phase phase) {
  if (phase == Phase::kRunning) spares_.Begin();
}

void OneHost::OnRunEnded() {
  if (world_.plan.policy.can_spawn) world_.In(kLeaveLimit, [this] { EndStragglers(); });
}

Directory::Answer OneHost::ControllerOf(const Process*) { return {.refused = world_.seat().down, .seat = nullptr}; }

void OneHost::Spawn(Rank rank, Incarnation incarnation) {
  Process* const before = world_.processes.Newest(rank);
  if (before && before->alive) {
    next_[static_cast<size_t>(rank.value())] = incarnation;
    return processes_.Die(before, "killed by SIGKILL");
  }
  Start(rank, incarnation);
}

void OneHost::OnExited(Process* p, const std::string& cause) {
  if (world_.plan.policy.can_spawn) {
    world_.seat().given_up.insert({p->rank, p->incarnation});
    // What an earlier controller asked for while there is no other, a launcher forgets.
    held_.Hold(p, cause);
    controllers_.TakeHeld(held_.HeldOf(p->rank));
    if (world_.seat().down) return next_[static_cast<size_t>(p->rank.value())].reset();
    controllers_.Feed(ProcessExited{p->rank, p->incarnation, cause, std::nullopt});
    if (const auto next = std::exchange(next_[static_cast<size_t>(p->rank.value())], std::nullopt))
      Start(p->rank, *next);
  } else if (world_.processes.Newest(p->rank) == p && !world_.seat().ended && cause != kLeftContent) {
    Start(p->rank, Incarnation());
  }
}

void OneHost::Start(Rank rank, Incarnation incarnation) {
  if (!Over()) processes_.Start(rank, incarnation, world_.plan.NodeOf(rank.value()));
}

void OneHost::OnBooted(Process* p) {
  agents_.Connect(p);
  Beat(p);
}

void OneHost::Beat(Process* p) {
  ++p->beats;
  const core::Beat beat{p->beats, p->Place()};
  if (world_.plan.watched)  // through the launcher's page
    controllers_.Feed(FromAgent{{world_.core().term(), world_.core().generation(), p->rank, p->incarnation}, beat});
  else if (p->core)
    network_.SendUp(p, p->core->generation(), beat);
  if (!world_.seat().ended) world_.For(p, world_.plan.beat, [this, p] { Beat(p); });
}

void OneHost::Kill(const KillProcess& kill) {
  if (!world_.plan.policy.can_spawn)
    return;  // nobody here can reach the process: it joins again, is refused and leaves
  Process* const p = world_.processes.Newest(kill.rank);
  if (p && p->incarnation == kill.incarnation && !p->alive &&
      world_.plan.policy.needs_consent)  // it went with its host
    return world_.In(world_.Between(10, 2000), [this, rank = kill.rank, incarnation = kill.incarnation] {
      controllers_.Feed(ProcessExited{rank, incarnation, "had ended", std::nullopt});
    });
  if (p && p->incarnation == kill.incarnation)
    world_.In(world_.Between(10, 2000), [this, p] { processes_.Die(p, "killed by SIGKILL"); });
}

// Its launcher ends what is still there; but a process that nothing has struck leaves when it is told to.
void OneHost::EndStragglers() {
  for (Process& p : world_.processes.all())
    if (p.alive && (world_.losses.struck(p.rank.value()) || world_.core().term().number > 1))
      processes_.Die(&p, "killed by SIGKILL");
}

// A launcher's first words: which of its processes run.
void OneHost::TellOfProcesses(int node) {
  for (size_t r = 0; r < world_.size && !world_.seat().ended; ++r) {
    const Rank rank(static_cast<int32_t>(r));
    Process* const p = world_.processes.Newest(rank);
    if (world_.plan.NodeOf(rank.value()) != node || !p) continue;
    controllers_.TakeHeld(held_.HeldOf(rank));
    if (p->alive)
      controllers_.Feed(core::ProcessFound{rank, p->incarnation});
    else
      controllers_.Feed(ProcessExited{rank, p->incarnation, "had ended", std::nullopt});
  }
  spares_.TellAgain(node);
}

}  // namespace kintsugi::sim
