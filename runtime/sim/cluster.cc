// The cluster's clock, its network and the controller's driver.
#include "runtime/sim/cluster.h"

#include <cstdio>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

ReplicaMap MapOf(const Plan& plan) { return ReplicaMap::Build(plan.policy.world_size, plan.claims).value(); }

constexpr Duration kTick = 20ms;
constexpr Duration kBeat = 50ms;
// Longer than any sequence of deadlines that three faults can use up.
constexpr Duration kHang = 400s;

}  // namespace

Cluster::Cluster(Plan plan, bool log)
    : plan_(std::move(plan)),
      log_(log),
      random_(plan_.seed ^ 0xC0FFEE),
      replicas_(MapOf(plan_)),
      reference_(replicas_, plan_.policy.world_size, plan_.steps),
      core_(plan_.policy, Term{1, 1}) {}

void Cluster::In(Duration delay, std::function<void()> what) {
  events_.push({now_ + delay, ++event_number_, std::make_shared<std::function<void()>>(std::move(what))});
}

void Cluster::For(const ProcessPtr& p, Duration delay, std::function<void()> what) {
  // A frozen process never goes on.
  In(delay, [p, what = std::move(what)] {
    if (p->alive && !p->frozen) what();
  });
}

void Cluster::Trainer(const ProcessPtr& p, Duration delay, std::function<void()> what) {
  For(p, delay, [p, activity = p->activity, what = std::move(what)] {
    if (p->activity == activity) what();
  });
}

Duration Cluster::Between(int64_t low_us, int64_t high_us) {
  return std::chrono::microseconds(low_us + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(high_us - low_us))));
}

Duration Cluster::Latency() { return random_.Chance(0.05) ? Between(1000, 20000) : Between(50, 800); }

void Cluster::Log(const std::string& text) {
  if (log_) std::fprintf(stderr, "%10.3f ms  %s\n", ToMilliseconds(now_ - start_), text.c_str());
}

void Cluster::Violation(const std::string& text) {
  Log("VIOLATION: " + text);
  outcome_.violations.push_back(text);
}

Outcome Cluster::Run() {
  for (size_t i = 0; i < plan_.faults.size(); ++i)
    if (plan_.faults[i].at) In(*plan_.faults[i].at, [this, i] { Strike(plan_.faults[i]); });
  for (const ControllerAction& action : core_.Start(now_)) Act(action);
  In(kTick, [this] { Tick(); });
  try {
    while (!events_.empty() && outcome_.violations.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (now_ - start_ > kHang) {
        Violation("the run hangs in " + std::string(PhaseName(core_.phase())));
        break;
      }
      (*event.what)();
    }
  } catch (const std::exception& e) {
    Violation(std::string("exception: ") + e.what());
  }
  if (outcome_.violations.empty()) CheckEnd();
  outcome_.took = now_ - start_;
  outcome_.incidents = core_.incidents();
  return outcome_;
}

void Cluster::Tick() {
  Feed(core::Tick{});
  if (!ended_) In(kTick, [this] { Tick(); });
}

// ---- controller's driver -------------------------------------------------------------------------------------------

void Cluster::Feed(const ControllerEvent& event) {
  const std::vector<ControllerAction> actions = core_.Step(event, now_);
  if (core_.generation() != stored_generation_) {
    stored_generation_ = core_.generation();
    Answer(store_.Advance(stored_generation_));
  }
  for (const ControllerAction& action : actions) Act(action);
}

void Cluster::Answer(const std::vector<StoreTable::Answer>& answers) {
  for (const StoreTable::Answer& answer : answers)
    SendDown({core_.term(), core_.generation(), answer.rank, answer.incarnation}, answer.reply);
}

void Cluster::Act(const ControllerAction& action) {
  if (const auto* send = std::get_if<Send>(&action)) {
    CheckSend(*send);
    SendDown(send->header, send->message);
  } else if (const auto* spawn = std::get_if<SpawnProcess>(&action)) {
    CheckSpawn(spawn->rank, spawn->incarnation);
    Spawn(spawn->rank, spawn->incarnation);
  } else if (const auto* kill = std::get_if<KillProcess>(&action)) {
    CheckKill(*kill);
    Log("kill rank " + kill->rank.ToString() + " inc " + kill->incarnation.ToString() + ": " + kill->reason);
    given_up_.insert({kill->rank, kill->incarnation});
    if (const ProcessPtr p = processes_[kill->rank]; p && p->incarnation == kill->incarnation)
      In(Between(10, 2000), [this, p] { Die(p, "killed by SIGKILL"); });
  } else if (const auto* transition = std::get_if<Transition>(&action)) {
    Log("== " + std::string(PhaseName(transition->from)) + " -> " + std::string(PhaseName(transition->to)) + " gen " +
        transition->generation.ToString() + ": " + transition->reason);
    CheckTransition(*transition);
    OnPhase(transition->to);
  } else if (const auto* closed = std::get_if<IncidentClosed>(&action)) {
    outcome_.attempts_max = std::max(outcome_.attempts_max, closed->record.attempts);
    if (closed->record.rung) outcome_.rungs.insert(*closed->record.rung);
  } else if (const auto* ended = std::get_if<RunEnded>(&action)) {
    Log("ended " + std::to_string(ended->exit_code) + ": " + ended->text);
    if (ended_) Violation("the run ended twice");
    ended_ = *ended;
  } else if (const auto* notice = std::get_if<Notice>(&action)) {
    Log("notice rank " + notice->rank.ToString() + ": " + notice->text);
  }
}

void Cluster::SendDown(const Header& header, ControllerMessage message) {
  const auto found = links_.find(header.rank);
  if (found == links_.end() || found->second.first != header.incarnation) return;
  const LinkPtr link = found->second.second;
  if (!link->down_open) return;
  link->last_down = std::max(link->last_down + 1ns, now_ + Latency());
  const ProcessPtr p = processes_[header.rank];
  For(p, link->last_down - now_, [this, p, link, header, message = std::move(message)] {
    if (link->down_open && p->link == link) OnDown(p, header, message);
  });
}

void Cluster::SendUp(const ProcessPtr& p, Generation generation, AgentMessage message) {
  const LinkPtr link = p->link;
  if (!link || !link->up_open) return;
  link->last_up = std::max(link->last_up + 1ns, now_ + Latency());
  const Header header{p->core ? p->core->term() : Term{}, generation, p->rank, p->incarnation};
  // What is on its way arrives, even from a process that died meanwhile.
  In(link->last_up - now_, [this, link, header, message = std::move(message)] {
    if (link->up_open) OnUp(link, header, message);
  });
}

void Cluster::OnUp(const LinkPtr& link, const Header& header, const AgentMessage& message) {
  if (std::holds_alternative<JoinRequest>(message)) links_[header.rank] = {header.incarnation, link};
  if (const auto* set = std::get_if<StoreSet>(&message)) return Answer(store_.Set(header, *set));
  if (const auto* get = std::get_if<StoreGet>(&message)) return Answer(store_.Get(header, *get));
  const auto* done = std::get_if<PhaseDone>(&message);
  if (std::holds_alternative<Published>(message) || (done && done->phase == Phase::kRename && done->code == StatusCode::kOk))
    checkpoint_known_ = checkpoint_known_ || (!ended_ && (!done || !given_up_.count({header.rank, header.incarnation})));
  Feed(FromAgent{header, message});
}

void Cluster::Connect(const ProcessPtr& p) {
  p->link = std::make_shared<Link>();
  p->link->rank = p->rank;
  p->link->incarnation = p->incarnation;
  SendUp(p, p->core ? p->core->generation() : Generation(),
         JoinRequest{1, "host" + p->rank.ToString(), plan_.watched});
}

void Cluster::CutLink(const ProcessPtr& p) {
  const LinkPtr link = std::exchange(p->link, nullptr);
  if (!link) return;
  link->up_open = link->down_open = false;
  In(Between(50, 3000), [this, link] {
    if (const auto found = links_.find(link->rank); found != links_.end() && found->second.second == link)
      links_.erase(found);
    Feed(ConnectionClosed{link->rank, link->incarnation});
  });
}

void Cluster::Spawn(Rank rank, Incarnation incarnation) {
  Log("spawn rank " + rank.ToString() + " inc " + incarnation.ToString());
  const auto p = std::make_shared<Process>();
  p->rank = rank;
  p->incarnation = incarnation;
  p->word = GateWord::Pack(GateState::kCommitted, 0) | GateWord::kLockBit;
  processes_[rank] = p;
  all_processes_.push_back(p);
  const bool bad = incarnation.value() > 1 && bad_replacements_[rank.value()] > 0 && bad_replacements_[rank.value()]-- > 0;
  const uint64_t how = bad ? random_.Below(4) : 4;
  if (how == 0) For(p, Between(100, 20000), [this, p] { Die(p, "exited with code 1"); });
  if (how == 1) p->frozen = true;   // never joins
  if (how == 2) p->doomed = true;   // dies after joining
  if (how == 3) For(p, Between(20000, 400000), [this, p] { Die(p, "killed by SIGSEGV"); });
  if (bad) NoteLoss(rank.value());
  For(p, Between(5000, 150000), [this, p] {
    Connect(p);
    Beat(p);
  });
}

void Cluster::Die(const ProcessPtr& p, const std::string& cause) {
  if (!p->alive) return;
  Log("rank " + p->rank.ToString() + " inc " + p->incarnation.ToString() + " dies at " + TrainerAtName(p->at) + ": " +
      cause);
  p->alive = false;
  if (p->group.value() > 0) In(Between(10, 3000), [this, group = p->group] { BreakGroup(group); });
  LeaveSession(p);
  if (const LinkPtr link = std::exchange(p->link, nullptr)) {
    link->down_open = false;
    In(std::max<Duration>(link->last_up - now_, 0ns) + Between(10, 20000), [this, link] {
      link->up_open = false;
      if (const auto found = links_.find(link->rank); found != links_.end() && found->second.second == link)
        links_.erase(found);
      Feed(ConnectionClosed{link->rank, link->incarnation});
    });
  }
  In(Between(100, 20000), [this, p, cause] {
    given_up_.insert({p->rank, p->incarnation});
    Feed(ProcessExited{p->rank, p->incarnation, cause, std::nullopt});
  });
}

void Cluster::Beat(const ProcessPtr& p) {
  ++p->beats;
  const core::Beat beat{p->beats, kintsugi::Step(p->begun)};
  if (plan_.watched)  // through the launcher's page
    Feed(FromAgent{{core_.term(), core_.generation(), p->rank, p->incarnation}, beat});
  else if (p->core)
    SendUp(p, p->core->generation(), beat);
  if (!ended_) For(p, kBeat, [this, p] { Beat(p); });
}

}  // namespace kintsugi::sim
