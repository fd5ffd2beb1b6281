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
    return Die(before, "killed by SIGKILL");
  }
  StartProcess(rank, incarnation);
}

void Cluster::StartProcess(Rank rank, Incarnation incarnation, std::optional<int> node) {
  if (Over()) return;
  world_.Log("start rank " + rank.ToString() + " inc " + incarnation.ToString());
  const bool first = world_.processes.Newest(rank) == nullptr;
  Process* const p = &world_.processes.Add(rank, incarnation, node.value_or(world_.plan.NodeOf(rank.value())));
  const auto takes = [&](std::map<int, int>& planned) {
    return !first && planned[rank.value()] > 0 && planned[rank.value()]-- > 0;
  };
  const bool bad = takes(bad_replacements_);
  const uint64_t how = bad ? world_.random.Below(4) : 4;
  if (how == 0) world_.For(p, world_.Between(100, 20000), [this, p] { Die(p, "exited with code 1"); });
  if (how == 1) p->frozen = true;  // never joins
  if (how == 2) p->doomed = true;  // dies after joining
  if (how == 3) world_.For(p, world_.Between(20000, 400000), [this, p] { Die(p, "killed by SIGSEGV"); });
  if (bad) world_.losses.Late(rank.value());
  Duration boot = world_.Between(5000, 150000);
  if (!first && TakeSpare(rank)) boot = world_.Between(50, 3000);  // its start-up is over
  if (takes(slow_replacements_)) {
    boot = world_.Between(1'000'000, 7'000'000);  // some come too late
    world_.losses.Late(rank.value());
  }
  if (takes(fast_replacements_)) boot = world_.Between(50, 500);
  world_.For(p, boot, [this, p] {
    Connect(p);
    Beat(p);
  });
}

// The end as the kernel tells it: sockets close, collectives break, a parent is told.
void Cluster::Die(Process* p, const std::string& cause) {
  if (!p->alive) return;
  world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " dies at " +
             std::string(TrainerAtName(p->at)) + ": " + cause);
  p->alive = false;
  if (!world_.seat().ended && !world_.plan.policy.adopts) LoseRot(p);  // else what it leaves may still be compared
  p->deferred.clear();
  world_.NoteProgress();
  if (p->group.value() > 0) world_.In(world_.Between(10, 3000), [this, group = p->group] { BreakGroup(group); });
  LeaveSession(p);
  if (Link* const link = std::exchange(p->link, nullptr)) {
    link->down.open = false;
    Put(link, true, "");  // what is on its way arrives first
  }
  world_.In(world_.Between(100, 20000), [this, p, cause = cause] { Reap(p, cause); });
}

// The end that nobody tells: a host is gone.
void Cluster::Vanish(Process* p) {
  world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " vanishes at " +
             std::string(TrainerAtName(p->at)));
  p->alive = false;
  LoseRot(p);
  world_.left.erase(p->rank);
  p->deferred.clear();
  if (p->group.value() > 0) world_.In(world_.Between(10, 3000), [this, group = p->group] { BreakGroup(group); });
  LeaveSession(p);
  if (Link* const link = std::exchange(p->link, nullptr)) {
    link->down.open = link->up.open = false;
    world_.In(world_.Between(2'000'000, 4'000'000), [this, link] { CloseAtController(link, false); });  // keepalive
  }
  if (!world_.plan.policy.can_spawn)
    world_.In(world_.Between(50000, 2'000'000), [this, p] { Reap(p, "the host is gone"); });
}

void Cluster::Reap(Process* p, const std::string& cause) {
  if (!launchers_.empty()) return ReapHere(p, cause);
  if (world_.plan.policy.can_spawn) {
    world_.seat().given_up.insert({p->rank, p->incarnation});
    // What an earlier controller asked for while there is no other, a launcher forgets.
    Hold(p, cause);
    TakeHeld(HeldOf(p->rank));
    if (world_.seat().down) return next_[static_cast<size_t>(p->rank.value())].reset();
    Feed(ProcessExited{p->rank, p->incarnation, cause, std::nullopt});
    if (const auto next = std::exchange(next_[static_cast<size_t>(p->rank.value())], std::nullopt))
      StartProcess(p->rank, *next);
  } else if (world_.processes.Newest(p->rank) == p && !world_.seat().ended) {
    StartProcess(p->rank, Incarnation());
  }
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
    SendUp(p, p->core->generation(), beat);
  if (!world_.seat().ended) world_.For(p, world_.plan.beat, [this, p] { Beat(p); });
}

void Cluster::Freeze(Process* p, std::optional<Duration> length) {
  p->frozen = true;
  if (!length) return;
  world_.In(*length, [this, p] {
    if (!p->alive) return;
    world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " thaws");
    p->frozen = false;
    for (Task& task : std::exchange(p->deferred, {})) {
      if (!p->alive) return;
      task();
    }
  });
}

}  // namespace kintsugi::sim
