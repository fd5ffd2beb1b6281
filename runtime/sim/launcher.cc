// Processes: who starts them, how they die, and who hears of it. Mirrors runtime/launcher; where the policy has none, a
// supervisor that knows nothing of ranks' incarnations starts every process again when it has ended.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::Spawn(Rank rank, Incarnation incarnation) {
  // A victim is reaped before its successor starts.
  const ProcessPtr before = Newest(rank);
  if (before && before->alive) {
    next_[static_cast<size_t>(rank.value())] = incarnation;
    return Die(before, "killed by SIGKILL");
  }
  StartProcess(rank, incarnation);
}

void Cluster::StartProcess(Rank rank, Incarnation incarnation, std::optional<int> node) {
  if (Over()) return;
  Log("start rank " + rank.ToString() + " inc " + incarnation.ToString());
  all_processes_.push_back(std::make_unique<Process>());
  const ProcessPtr p = all_processes_.back().get();
  p->rank = rank;
  p->incarnation = incarnation;
  p->node = node.value_or(plan_.NodeOf(rank.value()));
  on_[{p->node, rank.value()}] = p;
  p->pid = 1000 + all_processes_.size();
  p->word = GateWord::Pack(GateState::kCommitted, 0) | GateWord::kLockBit;
  const bool first = Newest(rank) == nullptr;
  processes_[static_cast<size_t>(rank.value())] = p;
  const auto takes = [&](std::map<int, int>& planned) {
    return !first && planned[rank.value()] > 0 && planned[rank.value()]-- > 0;
  };
  const bool bad = takes(bad_replacements_);
  const uint64_t how = bad ? random_.Below(4) : 4;
  if (how == 0) For(p, Between(100, 20000), [this, p] { Die(p, "exited with code 1"); });
  if (how == 1) p->frozen = true;  // never joins
  if (how == 2) p->doomed = true;  // dies after joining
  if (how == 3) For(p, Between(20000, 400000), [this, p] { Die(p, "killed by SIGSEGV"); });
  if (bad) NoteLate(rank.value());
  Duration boot = Between(5000, 150000);
  if (!first && TakeSpare(rank)) boot = Between(50, 3000);  // its start-up is over
  if (takes(slow_replacements_)) {
    boot = Between(1'000'000, 7'000'000);  // some come too late
    NoteLate(rank.value());
  }
  if (takes(fast_replacements_)) boot = Between(50, 500);
  For(p, boot, [this, p] {
    Connect(p);
    Beat(p);
  });
}

// The end as the kernel tells it: sockets close, collectives break, a parent is told.
void Cluster::Die(ProcessPtr p, const std::string& cause) {
  if (!p->alive) return;
  Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " dies at " +
      std::string(TrainerAtName(p->at)) + ": " + cause);
  p->alive = false;
  if (!ended_ && !plan_.policy.adopts) LoseRot(p);  // else what it leaves may still be compared
  p->deferred.clear();
  last_progress_ = Now();
  if (p->group.value() > 0) In(Between(10, 3000), [this, group = p->group] { BreakGroup(group); });
  LeaveSession(p);
  if (const LinkPtr link = std::exchange(p->link, nullptr)) {
    link->down.open = false;
    Put(link, true, "");  // what is on its way arrives first
  }
  In(Between(100, 20000), [this, p, cause = cause] { Reap(p, cause); });
}

// The end that nobody tells: a host is gone.
void Cluster::Vanish(ProcessPtr p) {
  Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " vanishes at " +
      std::string(TrainerAtName(p->at)));
  p->alive = false;
  LoseRot(p);
  left_.erase(p->rank);
  p->deferred.clear();
  if (p->group.value() > 0) In(Between(10, 3000), [this, group = p->group] { BreakGroup(group); });
  LeaveSession(p);
  if (const LinkPtr link = std::exchange(p->link, nullptr)) {
    link->down.open = link->up.open = false;
    In(Between(2'000'000, 4'000'000), [this, link] { CloseAtController(link, false); });  // keepalive
  }
  if (!plan_.policy.can_spawn) In(Between(50000, 2'000'000), [this, p] { Reap(p, "the host is gone"); });
}

void Cluster::Reap(ProcessPtr p, const std::string& cause) {
  if (!launchers_.empty()) return ReapHere(p, cause);
  if (plan_.policy.can_spawn) {
    given_up_.insert({p->rank, p->incarnation});
    // What an earlier controller asked for while there is no other, a launcher forgets.
    Hold(p, cause);
    TakeHeld(HeldOf(p->rank));
    if (controller_down_) return next_[static_cast<size_t>(p->rank.value())].reset();
    Feed(ProcessExited{p->rank, p->incarnation, cause, std::nullopt});
    if (const auto next = std::exchange(next_[static_cast<size_t>(p->rank.value())], std::nullopt))
      StartProcess(p->rank, *next);
  } else if (Newest(p->rank) == p && !ended_) {
    StartProcess(p->rank, Incarnation());
  }
}

// As the page tells it.
Progress Cluster::PlaceOf(ProcessPtr p) const {
  const TrainPhase phase = p->at == TrainerAt::kGradients   ? TrainPhase::kGradientSync
                           : p->at == TrainerAt::kParamSync ? TrainPhase::kParamSync
                                                            : TrainPhase::kForward;
  return core::PlaceOf(PackProgress(p->begun, phase), GateWord::Unpack(p->word));
}

void Cluster::Beat(ProcessPtr p) {
  ++p->beats;
  if (!launchers_.empty()) {  // its page, which its launcher reads
    if (!Over()) For(p, plan_.beat, [this, p] { Beat(p); });
    return;
  }
  const core::Beat beat{p->beats, PlaceOf(p)};
  if (plan_.watched)  // through the launcher's page
    Feed(FromAgent{{core_->term(), core_->generation(), p->rank, p->incarnation}, beat});
  else if (p->core)
    SendUp(p, p->core->generation(), beat);
  if (!ended_) For(p, plan_.beat, [this, p] { Beat(p); });
}

void Cluster::Freeze(ProcessPtr p, std::optional<Duration> length) {
  p->frozen = true;
  if (!length) return;
  In(*length, [this, p] {
    if (!p->alive) return;
    Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " thaws");
    p->frozen = false;
    for (Task& task : std::exchange(p->deferred, {})) {
      if (!p->alive) return;
      task();
    }
  });
}

}  // namespace kintsugi::sim
