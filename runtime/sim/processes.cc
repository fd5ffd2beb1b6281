#include "runtime/sim/processes.h"

namespace kintsugi::sim {

void Processes::Start(Rank rank, Incarnation incarnation, int node) {
  world_.Log("start rank " + rank.ToString() + " inc " + incarnation.ToString());
  const bool first = world_.processes.Newest(rank) == nullptr;
  Process* const p = &world_.processes.Add(rank, incarnation, node);
  Fates& fates = fates_[rank.value()];
  const auto takes = [first](int& planned) { return !first && planned > 0 && planned-- > 0; };
  const bool bad = takes(fates.bad);
  const uint64_t how = bad ? world_.random.Below(4) : 4;
  if (how == 0) world_.For(p, world_.Between(100, 20000), [this, p] { Die(p, "exited with code 1"); });
  if (how == 1) p->frozen = true;           // never joins
  if (how == 2) p->troubles.doomed = true;  // dies after joining
  if (how == 3) world_.For(p, world_.Between(20000, 400000), [this, p] { Die(p, "killed by SIGSEGV"); });
  if (bad) world_.losses.Late(rank.value());
  Duration boot = world_.Between(5000, 150000);
  if (!first && spares_.Take(rank)) boot = world_.Between(50, 3000);  // its start-up is over
  if (takes(fates.slow)) {
    boot = world_.Between(1'000'000, 7'000'000);  // some come too late
    world_.losses.Late(rank.value());
  }
  if (takes(fates.fast)) boot = world_.Between(50, 500);
  world_.For(p, boot, [this, p] { parent_.OnBooted(p); });
}

void Processes::Die(Process* p, const std::string& cause) {
  if (!p->alive) return;
  world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " dies at " +
             std::string(TrainerAtName(p->at)) + ": " + cause);
  p->alive = false;
  if (!world_.seat().ended && !world_.plan.policy.adopts) rot_.Lose(p);  // else what it leaves may still be compared
  p->deferred.clear();
  world_.NoteProgress();
  BreakGroupOf(p);
  transfers_.Leave(p);
  if (Connection* const connection = std::exchange(p->connection, nullptr)) {
    connection->down.open = false;
    network_.Put(connection, true, "");  // what is on its way arrives first
  }
  world_.In(world_.Between(100, 20000), [this, p, cause = cause] { parent_.OnExited(p, cause); });
}

void Processes::Vanish(Process* p) {
  world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " vanishes at " +
             std::string(TrainerAtName(p->at)));
  p->alive = false;
  rot_.Lose(p);
  world_.left.erase(p->rank);
  p->deferred.clear();
  BreakGroupOf(p);
  transfers_.Leave(p);
  if (Connection* const connection = std::exchange(p->connection, nullptr)) network_.Vanish(connection);
  if (!world_.plan.policy.can_spawn)
    world_.In(world_.Between(50000, 2'000'000), [this, p] { parent_.OnExited(p, "the host is gone"); });
}

void Processes::EndWithLauncher(Process* p) {
  world_.Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " ends with its launcher");
  p->alive = false;
  p->reaped = true;
  world_.left.erase(p->rank);
  p->deferred.clear();
  BreakGroupOf(p);
  transfers_.Leave(p);
  if (Connection* const connection = std::exchange(p->connection, nullptr))
    connection->down.open = connection->up.open = false;
}

void Processes::BreakGroupOf(Process* p) {
  if (p->group.value() == 0) return;
  world_.In(world_.Between(10, 3000), [this, group = p->group] { collectives_.BreakGroup(group); });
}

void Processes::Freeze(Process* p, std::optional<Duration> length) {
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
