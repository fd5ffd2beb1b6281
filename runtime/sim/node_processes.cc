#include "runtime/sim/node_processes.h"

#include "runtime/wire/node_messages.h"

namespace kintsugi::sim {

void NodeProcesses::Spawn(Launcher& l, Rank rank, Incarnation incarnation) {
  if (l.ended) return;
  for (const auto& [term, newest] : newest_[rank])
    if (term <= l.term.number && incarnation <= newest)
      return world_.Break(Promise::kOneDecider, "incarnations of rank " + rank.ToString() + " do not grow");
  Process* const before = world_.processes.NewestOn(l.node, rank);
  NextOn(l.node, rank) = incarnation;
  if (before && before->alive) return processes_.Die(before, "killed by SIGKILL");
  if (before && !before->reaped) return;
  NextOn(l.node, rank).reset();
  Start(l, rank, incarnation);
}

void NodeProcesses::Start(Launcher& l, Rank rank, Incarnation incarnation) {
  newest_[rank][l.term.number] = incarnation;
  l.fresh.OnStarted(rank, incarnation, l.running);
  processes_.Start(rank, incarnation, l.node);
}

void NodeProcesses::Kill(Launcher& l, Rank rank, Incarnation incarnation) {
  auto& next = NextOn(l.node, rank);
  if (next == incarnation) next.reset();
  Process* const p = world_.processes.NewestOn(l.node, rank);
  if (p && p->alive && p->incarnation == incarnation)
    world_.In(world_.Between(10, 2000), [this, p] { processes_.Die(p, "killed by SIGKILL"); });
}

void NodeProcesses::Reap(Process* p, const std::string& cause) {
  Launcher& l = launchers_.HostOf(p);
  if (l.frozen) return l.deferred.push_back(Task([this, p, cause = cause] { Reap(p, cause); }));
  p->reaped = true;
  if (!l.alive) return;
  held_.Hold(p, cause);
  if (world_.plan.policy.adopts) lines_.Tell(l, held_.HeldOf(p->rank));
  lines_.Tell(l, wire::WorkerExited{p->rank, p->incarnation, cause, {}, {}});
  if (world_.processes.NewestOn(l.node, p->rank) != p || l.ended) return;
  if (const auto next = std::exchange(NextOn(l.node, p->rank), std::nullopt)) Start(l, p->rank, *next);
}

void NodeProcesses::KillAll(Launcher& l) {
  for (Process* const p : world_.processes.On(l.node)) {
    NextOn(l.node, p->rank).reset();
    if (p->alive) Kill(l, p->rank, p->incarnation);
  }
}

void NodeProcesses::EndAll(Launcher& l) {
  for (Process* const p : world_.processes.On(l.node)) {
    NextOn(l.node, p->rank).reset();
    if (p->alive) processes_.EndWithLauncher(p);
  }
}

void NodeProcesses::Leave(Launcher& l) {
  if (std::exchange(l.ended, true)) return;
  world_.Log(NodeName(l.node) + " leaves");
  launchers_.At(l, kLeaveLimit, [this, &l] {
    for (Process* const p : world_.processes.On(l.node))
      if (p->alive) processes_.Die(p, "killed by SIGKILL");
  });
}

}  // namespace kintsugi::sim
