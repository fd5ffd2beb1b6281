#include "runtime/core/controller_core.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

bool IsHandlerPhase(Phase phase) {
  return phase >= Phase::kClean && phase <= Phase::kRollback && phase != Phase::kAdmit;
}

}  // namespace

ControllerCore::ControllerCore(Policy policy, Term term)
    : policy_(std::move(policy)),
      term_(term),
      members_(static_cast<size_t>(policy_.world_size)),
      detector_(policy_.silence),
      hangs_(policy_.Hangs(), policy_.world_size),
      slow_(policy_.world_size),
      phase_times_(policy_.Phases()),
      tie_rule_(policy_.tie_rule),
      snapshot_interval_(std::max<uint64_t>(policy_.snapshot_every, 1)) {
  const Status valid = policy_.Validate();
  KINTSUGI_CHECK(valid.ok(), valid.message());
  if (!policy_.resume_directory.empty() && !policy_.resume_by_trainer) checkpoints_.push_back({policy_.resume_step, policy_.resume_directory});
}

std::vector<ControllerAction> ControllerCore::Start(TimePoint now) {
  now_ = now;
  phase_began_ = now;
  if (policy_.takes_over) {
    BeginTakeover();
    return std::exchange(out_, {});
  }
  generation_ = Generation(1);
  deadline_ = now_ + policy_.join_timeout;
  for (int r = 0; r < policy_.world_size; ++r) {
    if (!policy_.can_spawn) continue;
    Member& member = members_[static_cast<size_t>(r)];
    member.incarnation = Incarnation(1);
    SetLife(member, Life::kStarting);
    out_.push_back(SpawnProcess{Rank(r), member.incarnation});
  }
  return std::exchange(out_, {});
}

std::vector<ControllerAction> ControllerCore::Step(const ControllerEvent& event, TimePoint now) {
  now_ = now;
  if (phase_ == Phase::kEnded && !std::holds_alternative<FromAgent>(event)) return {};
  if (CheckWord(); phase_ == Phase::kEnded && !out_.empty()) return std::exchange(out_, {});
  std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, FromAgent>) OnMessage(e.header, e.message);
        if constexpr (std::is_same_v<E, ConnectionClosed>) OnClosed(e);
        if constexpr (std::is_same_v<E, ProcessExited>) OnExited(e);
        if constexpr (std::is_same_v<E, SparesWaiting>) OnSpares(e);
        if constexpr (std::is_same_v<E, StateHeld>) OnHeld(e);
        if constexpr (std::is_same_v<E, OperatorSave>) RequestSave(false);
        if constexpr (std::is_same_v<E, OperatorStop>) RequestSave(true);
        if constexpr (std::is_same_v<E, OperatorInject>)
          if (InWorld(e.rank)) SendTo(e.rank, InjectOrder{e.injection});
        if constexpr (std::is_same_v<E, ProcessFound>) OnFound(e);
        if constexpr (std::is_same_v<E, TieRuleTaken>) tie_rule_ = e.rule, CheckWord(), ReconsiderMajority();
        if constexpr (std::is_same_v<E, WitnessWord>) word_until_ = e.until, CheckWord(), ReconsiderMajority();
        if constexpr (std::is_same_v<E, Tick>) OnTick();
      },
      event);
  return std::exchange(out_, {});
}

void ControllerCore::OnMessage(const Header& header, const AgentMessage& message) {
  if (!InWorld(header.rank)) return Drop(header.rank, "the rank is outside the world");
  if (const auto* join = std::get_if<JoinRequest>(&message)) return OnJoin(header, *join);
  Member& member = At(header.rank);
  // A checkpoint that became visible stays so, whatever became of the rank that says so.
  if (const auto* published = std::get_if<Published>(&message);
      published && header.term == term_ && phase_ != Phase::kEnded)
    return OnPublished(published->step, published->directory);
  // What a lost process had registered, by the launcher that holds its memory.
  if (const auto* ready = std::get_if<Ready>(&message);
      ready && taking_over_ && !member.registered && header.incarnation != member.incarnation) {
    Register(member, *ready);
    return;
  }
  if (header.incarnation != member.incarnation || member.life == Life::kDead)
    return Drop(header.rank, "incarnation " + header.incarnation.ToString() + " is not the living one");
  if (header.term != term_) return Drop(header.rank, "the message is of another term");
  if (phase_ == Phase::kEnded) return;
  const bool current = header.generation == generation_;
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        const Rank rank = header.rank;
        if constexpr (std::is_same_v<M, Beat>) {
          if (current) {
            member.begun = kintsugi::Step(m.place.step);
            OnPlace(rank, m.place);
          }
          detector_.OnBeat(rank, m.count, now_);
        } else if constexpr (std::is_same_v<M, Ready>) {
          OnReady(header, m);
        } else if constexpr (std::is_same_v<M, FaultReport>) {
          OnFaultReport(rank, m, current);
        } else if (!current) {
          Drop(rank, "generation " + header.generation.ToString() + " is not " + generation_.ToString());
        } else if constexpr (std::is_same_v<M, LockReply>) {
          OnLockReply(rank, m);
        } else if constexpr (std::is_same_v<M, Parked>) {
          OnParked(rank, m);
        } else if constexpr (std::is_same_v<M, PhaseDone>) {
          OnPhaseDone(rank, m);
        } else if constexpr (std::is_same_v<M, Resumed>) {
          OnResumed(rank);
        } else if constexpr (std::is_same_v<M, Finished>) {
          member.finished = m.step;
          hangs_.OnIdle(rank, now_);
          OnResumed(rank);  // a loop that had nothing left to do says no more than this
          MaybeFinish();
        } else if constexpr (std::is_same_v<M, GateEntered>) {
          OnGateEntered(rank, m.step);
        } else if constexpr (std::is_same_v<M, SavePoint>) {
          OnSavePoint(rank, m.step);
        } else if constexpr (std::is_same_v<M, PauseAck>) {
          OnPauseAck(rank, m);
        } else if constexpr (std::is_same_v<M, SnapshotReport>) {
          OnSnapshotReport(rank, m);
        }
        // StoreSet and StoreGet never reach the core: the driver's StoreTable answers them.
      },
      message);
}

void ControllerCore::OnFaultReport(Rank rank, const FaultReport& report, bool current) {
  Member& member = At(rank);
  if (report.kind == FaultKind::kCommError) {
    if (current) Suspect(rank, report.kind, report.text, report.since);
    return;
  }
  // Its agent has watched it exceed a limit: nothing is to be asked of it any more.
  if (report.kind == FaultKind::kStalled && current) {
    const bool hung = incident_ && incident_->signal == FaultKind::kHang;
    return GiveUp({rank}, hung ? FaultKind::kHang : FaultKind::kStalled, report.since, report.text);
  }
  // What the trainer ran into before it was stopped is settled by where it parks; damaged memory is news at any time.
  const bool memory = report.kind == FaultKind::kMemoryLow || report.kind == FaultKind::kMemoryHigh;
  if (!current && !memory) return Drop(rank, "the fault is of an older generation: " + report.text);
  if (report.kind == FaultKind::kException) NoteFailure(rank, report);
  if (memory && report.suspect_from.value() > 0)
    suspect_from_ = std::min(suspect_from_.value_or(report.suspect_from), report.suspect_from);
  if (report.kind == FaultKind::kMemoryLow && !report.in_update) {
    if (!member.needs_repair || !member.damaged_keys.empty())
      member.damaged_keys.insert(member.damaged_keys.end(), report.damaged_keys.begin(), report.damaged_keys.end());
    member.needs_repair = true;
  } else if (report.kind == FaultKind::kMemoryHigh || report.kind == FaultKind::kMemoryLow) {
    member.needs_repair = true;
    member.damaged_keys.clear();
  }
  // What its launcher held is this very memory since it was mapped.
  if (memory && member.adopted) DoubtHeld(rank);
  if (memory) SuspectSnapshots(rank, report.step);
  if (memory && current && NoteDamage(rank, report))
    return GiveUp({rank}, report.kind, report.since,
                  report.text + "; again and again at step " + report.step.ToString() + ": a new process takes over");
  Fault(rank, report.kind, report.text, report.since);
}

void ControllerCore::OnTick() {
  std::vector<Rank> silent;
  for (Rank rank : detector_.OnTick(now_)) {
    detector_.Forget(rank);
    if (At(rank).life == Life::kReady || At(rank).life == Life::kStarting) silent.push_back(rank);
  }
  if (!silent.empty()) {
    GiveUp(silent, FaultKind::kSilence, now_ - policy_.silence,
           "no sign of life for " + std::to_string(static_cast<int>(ToMilliseconds(policy_.silence))) + " ms");
    if (phase_ == Phase::kEnded) return;
  }
  GiveUpLost();
  CheckHangs();
  if (phase_ == Phase::kEnded) return;
  const bool writing = save_ == SaveState::kWriting || save_ == SaveState::kRenaming;
  if (now_ >= stop_deadline_ && phase_ == Phase::kRunning && !writing) {
    stop_deadline_ = TimePoint::Max();
    return Fault(Rank(0), FaultKind::kOperator, "the grace period is nearly over: saving at once", now_);
  }
  if (now_ >= relock_at_) return OnRelock();
  if (now_ >= deadline_) return OnDeadline();
  if (now_ < save_deadline_) return;
  save_deadline_ = TimePoint::Max();
  if (save_ == SaveState::kRescuing)
    return GiveUp(LateRescues(), FaultKind::kStalled, now_, "it did not come to save what is held in time");
  GiveUp(Ranks([](const Member& m) { return m.waiting; }), FaultKind::kStalled, now_,
         "the save was not finished in time");
}

void ControllerCore::GiveUpLost() {
  if (lost_count_ == 0) return;
  std::vector<Rank> lost;
  for (Rank rank : Ranks([](const Member& m) { return m.life == Life::kReady && !m.connected; }))
    if (IsLost(At(rank))) lost.push_back(rank);
  GiveUp(lost, FaultKind::kConnectionLost, now_ - policy_.ConfirmWindow(), "the control connection did not come back");
}

// Thousands may be cut off at once. Who is still missing while others come back is not lost: there is a queue.
bool ControllerCore::IsLost(const Member& member) const {
  const Duration window = policy_.ConfirmWindow();
  return now_ - std::max(member.closed_at, returned_at_) >= window ||
         now_ - member.closed_at >= kReturnWindowsMax * window;
}

void ControllerCore::OnDeadline() {
  deadline_ = TimePoint::Max();
  if (taking_over_) return TakenOver();
  if (awaiting_exits_) return phase_ == Phase::kLock ? AfterLock() : AfterStop();
  if (awaiting_majority_) return GiveUpMajority();
  if (phase_ == Phase::kConfirm) return EnterLock("no further cause within the confirmation window");
  if (phase_ == Phase::kAdmit && !ever_ran_) {
    for (int r = 0; r < policy_.world_size; ++r)
      if (members_[static_cast<size_t>(r)].life != Life::kReady)
        return End(kExitStartup, "rank " + std::to_string(r) + " was not ready within " +
                                     std::to_string(static_cast<int>(ToMilliseconds(policy_.join_timeout) / 1000)) +
                                     " s: does the program call Agent::Join and Agent::Run?");
  }
  // Whoever is still waited for did not keep the deadline. All are named before the first is given up: that begins the
  // next attempt, and in it everybody is waited for again.
  bool (*is_late)(const Member&) = [](const Member& m) { return m.waiting; };
  if (phase_ == Phase::kAdmit) is_late = [](const Member& m) { return m.life != Life::kReady; };
  if (phase_ == Phase::kRunning) is_late = [](const Member& m) { return !m.resumed; };
  const std::vector<Rank> late = Ranks(is_late);
  // In a phase of handlers all may hang because one does. They are cancelled; who does not come out of that, or hangs
  // again and again, is the one.
  if (IsHandlerPhase(phase_) && late.size() == LiveRanks().size()) {
    ran_out_ = had_its_time_ = true;
    return OnRelock();
  }
  const bool hung = phase_ == Phase::kStop && incident_ && incident_->signal == FaultKind::kHang;
  GiveUp(late, hung ? FaultKind::kHang : FaultKind::kStalled, now_,
         std::string(PhaseName(phase_)) + " not finished within " +
             std::to_string(static_cast<int>(ToMilliseconds(now_ - phase_began_))) + " ms");
}

void ControllerCore::OnRelock() {
  relock_at_ = TimePoint::Max();
  const std::string text = std::string(PhaseName(phase_)) + " failed without another cause";
  std::vector<Rank> hopeless;
  if (std::exchange(ran_out_, false))
    for (Rank rank : Ranks([](const Member& m) { return m.waiting; }))
      if ((At(rank).handler_failures += kOwnFailure) >= kHandlerFailuresMax) hopeless.push_back(rank);
  if (!incident_) OpenIncident(Rank(0), FaultKind::kStalled, text, now_);
  if (hopeless.empty()) return EnterLock(text);
  for (Member& member : members_) member.handler_failures = 0;
  GiveUp(hopeless, FaultKind::kStalled, now_, text + ", again and again");
}

void ControllerCore::GiveUp(const std::vector<Rank>& ranks, FaultKind kind, TimePoint since, const std::string& text) {
  for (Rank rank : ranks) {
    // One that was to come by itself and did not: there is nothing to kill, and no more waiting for it.
    if (At(rank).life == Life::kAbsent) At(rank).respawns = policy_.max_respawns;
    Kill(rank, text);
    RecordFault(rank, kind, text, since);
  }
  if (!ranks.empty()) EnterLock(text);
}

bool ControllerCore::WaitsAreBounded() const {
  if (phase_ == Phase::kEnded || (phase_ == Phase::kRunning && NobodyWaits() && unresumed_ == 0)) return true;
  return deadline_ != TimePoint::Max() || save_deadline_ != TimePoint::Max() || relock_at_ != TimePoint::Max();
}

// ---- helpers -----------------------------------------------------------------------------------------------------

void ControllerCore::SetPhase(Phase to, const std::string& reason) {
  KINTSUGI_CHECK(IsTransition(phase_, to), "no transition " + std::string(PhaseName(phase_)) + " -> " +
                                               std::string(PhaseName(to)) + " (" + reason + ")");
  if (incident_) incident_->phases.push_back({phase_, attempt_, generation_, phase_began_, now_});
  out_.push_back(Transition{phase_, to, incident_ ? incident_->id : 0, attempt_, generation_, reason});
  // CONFIRM only listens: what the ranks were asked for in RUNNING they still do.
  const bool listening = phase_ == Phase::kRunning || to == Phase::kRunning;
  phase_ = to;
  phase_began_ = now_;
  deadline_ = TimePoint::Max();
  relock_at_ = TimePoint::Max();
  ran_out_ = false;
  awaiting_exits_ = false;
  awaiting_majority_ = false;
  if (to == Phase::kLock || to == Phase::kRunning || to == Phase::kEnded) by_word_ = false;
  if (listening) return;
  save_deadline_ = TimePoint::Max();
  for (Member& member : members_) SetWaiting(member, false);
}

// Counted, like who waits: both are asked at every message or tick.
void ControllerCore::SetLife(Member& member, Life life) {
  ready_count_ += static_cast<int>(life == Life::kReady) - static_cast<int>(member.life == Life::kReady);
  lost_count_ -= static_cast<int>(member.life == Life::kReady && !member.connected);
  member.life = life;
  lost_count_ += static_cast<int>(life == Life::kReady && !member.connected);
}

void ControllerCore::SetConnected(Member& member, bool connected) {
  lost_count_ -= static_cast<int>(member.life == Life::kReady && !member.connected);
  member.connected = connected;
  lost_count_ += static_cast<int>(member.life == Life::kReady && !connected);
}

void ControllerCore::SetWaiting(Member& member, bool waiting) {
  // Counted, not looked up: every answer asks whether it was the last one.
  waiting_count_ += static_cast<int>(waiting) - static_cast<int>(member.waiting);
  member.waiting = waiting;
  if (!waiting) member.order.reset();
}

void ControllerCore::Ask(Rank rank, ControllerMessage message) {
  Member& member = At(rank);
  SetWaiting(member, true);
  member.wait_began = now_;
  if (auto* order = std::get_if<PhaseOrder>(&message); order && incident_) {
    order->fault_ranks = NamedFaults();
    order->replaced_ranks = replaced_;
    if (order->rung == Rung::kResume) order->rung = decision_.rung;
  }
  member.order = message;
  SendTo(rank, std::move(message));
}

void ControllerCore::SendTo(Rank rank, ControllerMessage message) {
  const Member& member = At(rank);
  // Nobody speaks to the dead, nor to those who are not there yet.
  if (member.life == Life::kDead || member.life == Life::kAbsent) return;
  out_.push_back(Send{{term_, generation_, rank, member.incarnation}, std::move(message)});
}

void ControllerCore::Kill(Rank rank, const std::string& reason) {
  const Incarnation incarnation = At(rank).incarnation;
  const bool exists = At(rank).life == Life::kReady || At(rank).life == Life::kStarting;
  MarkDead(rank);
  if (exists) out_.push_back(KillProcess{rank, incarnation, reason});
}

void ControllerCore::Heard(Rank rank, Phase phase) {
  Member& member = At(rank);
  SetWaiting(member, false);
  if (incident_) incident_->rank_spans.push_back({rank, phase, attempt_, member.wait_began, now_});
}

void ControllerCore::Drop(Rank rank, const std::string& why) {
  ++dropped_;
  out_.push_back(Notice{rank, "message dropped: " + why});
}

std::vector<Rank> ControllerCore::Ranks(bool (*which)(const Member&)) const {
  std::vector<Rank> ranks;
  for (size_t r = 0; r < members_.size(); ++r)
    if (which(members_[r])) ranks.push_back(Rank(static_cast<int32_t>(r)));
  return ranks;
}

std::vector<Rank> ControllerCore::LiveRanks() const {
  return Ranks([](const Member& m) { return m.life == Life::kReady; });
}

}  // namespace kintsugi::core
