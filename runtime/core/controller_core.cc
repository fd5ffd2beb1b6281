#include "runtime/core/controller_core.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"

namespace kintsugi::core {
namespace {

bool IsHandlerPhase(Phase phase) {
  return phase >= Phase::kClean && phase <= Phase::kRollback && phase != Phase::kAdmit;
}

// What a rank says of itself, whatever it has heard so far; everything else answers an order of one generation.
bool CountsInAnyGeneration(const AgentMessage& message) {
  return std::holds_alternative<Beat>(message) || std::holds_alternative<Ready>(message) ||
         std::holds_alternative<FaultReport>(message);
}

}  // namespace

ControllerCore::ControllerCore(Policy policy, Term term)
    : policy_(std::move(policy)),
      term_(term),
      members_(policy_.world_size),
      detector_(policy_.silence),
      hangs_(policy_.Hangs(), policy_.world_size),
      slow_(policy_.world_size),
      phase_times_(policy_.Phases()),
      repeats_(policy_.world_size),
      spares_(policy_.world_size),
      majority_(policy_),
      snapshots_(policy_.snapshot_every, policy_.snapshot_auto),
      pause_(policy_.world_size),
      gate_(policy_.world_size) {
  const Status valid = policy_.Validate();
  KINTSUGI_CHECK(valid.ok(), valid.message());
  if (!policy_.resume_directory.empty() && !policy_.resume_by_trainer)
    checkpoints_.Begin({{policy_.resume_step, policy_.resume_directory}});
}

std::vector<ControllerAction> ControllerCore::Start(TimePoint now) {
  KINTSUGI_CHECK(generation_ == Generation() && out_.empty(), "a run is started twice");
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
    members_.SetLife(member, Life::kStarting);
    out_.push_back(SpawnProcess{Rank(r), member.incarnation});
  }
  return std::exchange(out_, {});
}

std::vector<ControllerAction> ControllerCore::Step(const ControllerEvent& event, TimePoint now) {
  now_ = now;
  if (phase_ == Phase::kEnded && !std::holds_alternative<FromAgent>(event)) return {};
  if (CheckWord(); phase_ == Phase::kEnded && !out_.empty()) return std::exchange(out_, {});
  std::visit(Overloaded{
                 [this](const FromAgent& e) { OnMessage(e.header, e.message); },
                 [this](const ConnectionClosed& e) { OnClosed(e); },
                 [this](const ProcessExited& e) { OnExited(e); },
                 [this](const OperatorSave&) { RequestSave(false); },
                 [this](const OperatorStop&) { RequestSave(true); },
                 [this](const OperatorPause&) { OnPauseAsked(); },
                 [this](const OperatorContinue&) { OnContinueAsked(); },
                 [this](const OperatorReplace& e) { OnReplaceAsked(e.rank); },
                 [this](const OperatorInject& e) {
                   if (InWorld(e.rank)) SendTo(e.rank, InjectOrder{e.injection});
                 },
                 [this](const ProcessFound& e) { OnFound(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SparesWaiting& e) { spares_.Tell(e); },
                 [this](const StateHeld& e) { OnHeld(e); },
                 [this](const TieRuleTaken& e) { majority_.TakeRule(e.rule), CheckWord(), ReconsiderMajority(); },
                 [this](const RanksMoved& e) { OnMoved(e); },
                 [this](const WitnessWord& e) { majority_.TakeWord(e.until), CheckWord(), ReconsiderMajority(); },
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
  if (!current && !CountsInAnyGeneration(message))
    return Drop(header.rank, "generation " + header.generation.ToString() + " is not " + generation_.ToString());
  const Rank rank = header.rank;
  std::visit(Overloaded{
                 [](const JoinRequest&) {},  // taken above, like a checkpoint that became visible
                 [](const Published&) {},
                 [&](const Ready& m) { OnReady(header, m); },
                 [&](const Beat& m) { OnBeat(rank, m, current); },
                 [&](const FaultReport& m) { OnFaultReport(rank, m, current); },
                 [&](const LockReply& m) { OnLockReply(rank, m); },
                 [&](const Parked& m) { OnParked(rank, m); },
                 [&](const PhaseDone& m) { OnPhaseDone(rank, m); },
                 [&](const Resumed&) { OnResumed(rank); },
                 [&](const Finished& m) { OnFinished(rank, m); },
                 [&](const GateEntered& m) { OnGateEntered(rank, m.step); },
                 [&](const SavePoint& m) { OnSavePoint(rank, m.step); },
                 [&](const PauseAck& m) { OnPauseAck(rank, m); },
                 [&](const SnapshotReport& m) { OnSnapshotReport(rank, m); },
                 [](const StoreSet&) {},  // the driver's StoreTable answers
                 [](const StoreGet&) {},
             },
             message);
}

void ControllerCore::OnBeat(Rank rank, const Beat& beat, bool current) {
  if (current) {
    At(rank).begun = kintsugi::Step(beat.place.step);
    OnPlace(rank, beat.place);
  }
  detector_.OnBeat(rank, beat.count, now_);
}

void ControllerCore::OnFinished(Rank rank, const Finished& finished) {
  At(rank).finished = finished.step;
  hangs_.OnIdle(rank, now_);
  OnResumed(rank);  // a loop that had nothing left to do says no more than this
  MaybeFinish();
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
  if (report.kind == FaultKind::kException) repeats_.Failed(rank, report);
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
  if (memory && replicas_known_) snapshots_.Suspect(replicas_, rank, report.step);
  if (memory && current && repeats_.Damaged(rank, report.step))
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
  if (now_ >= stop_deadline_ && phase_ == Phase::kRunning && !Writes(save_)) {
    stop_deadline_ = TimePoint::Max();
    const std::string text = "the grace period is nearly over: saving at once";
    RecordFault(Rank(0), FaultKind::kOperator, text, now_);
    incident_->ranks.clear();  // nobody's fault
    return EnterLock(text);
  }
  if (now_ >= relock_at_) return OnRelock();
  if (now_ >= deadline_) return OnDeadline();
  if (now_ < save_deadline_) return;
  save_deadline_ = TimePoint::Max();
  if (save_ == SaveState::kRescuing)
    return GiveUp(LateRescues(), FaultKind::kStalled, now_, "it did not come to save what is held in time");
  GiveUp(members_.Where([](const Member& m) -> bool { return m.waiting; }), FaultKind::kStalled, now_,
         "the save was not finished in time");
}

void ControllerCore::GiveUpLost() {
  if (members_.lost() == 0) return;
  std::vector<Rank> lost;
  for (Rank rank : members_.Where([](const Member& m) { return m.lost(); }))
    if (IsLost(At(rank))) lost.push_back(rank);
  GiveUp(lost, FaultKind::kConnectionLost, now_ - policy_.ConfirmWindow(), "the control connection did not come back");
}

// Thousands may be cut off at once. Who is still missing while others come back is not lost: there is a queue.
bool ControllerCore::IsLost(const Member& member) const {
  const Duration window = policy_.ConfirmWindow();
  return now_ - std::max(member.closed_at, members_.returned_at()) >= window ||
         now_ - member.closed_at >= kReturnWindowsMax * window;
}

void ControllerCore::OnDeadline() {
  deadline_ = TimePoint::Max();
  if (taking_over_) return TakenOver();
  if (awaiting_exits_) return phase_ == Phase::kLock ? AfterLock() : AfterStop();
  if (majority_.awaited()) return majority_.GiveUp(), AfterLock();
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
  bool (*is_late)(const Member&) = [](const Member& m) -> bool { return m.waiting; };
  if (phase_ == Phase::kAdmit) is_late = [](const Member& m) { return m.life != Life::kReady; };
  if (phase_ == Phase::kRunning) is_late = [](const Member& m) { return !m.resumed; };
  const std::vector<Rank> late = members_.Where(is_late);
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
    for (Rank rank : members_.Where([](const Member& m) -> bool { return m.waiting; }))
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
  if (phase_ == Phase::kEnded || (phase_ == Phase::kRunning && NobodyWaits() && members_.unresumed() == 0)) return true;
  return deadline_ != TimePoint::Max() || save_deadline_ != TimePoint::Max() || relock_at_ != TimePoint::Max();
}

// ---- helpers -----------------------------------------------------------------------------------------------------

void ControllerCore::SetPhase(Phase to, const std::string& reason) {
  KINTSUGI_CHECK(IsTransition(phase_, to), "no transition " + std::string(PhaseName(phase_)) + " -> " +
                                               std::string(PhaseName(to)) + " (" + reason + ")");
  const bool has_step = to == Phase::kClean || (to >= Phase::kRepair && to <= Phase::kRename);
  KINTSUGI_CHECK(!has_step || choice_.step, std::string(PhaseName(to)) + " without a step to go to (" + reason + ")");
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
  majority_.OnPhase(to);
  if (listening) return;
  save_deadline_ = TimePoint::Max();
  members_.StopWaiting();
}

void ControllerCore::SetSave(SaveState to) {
  KINTSUGI_CHECK(IsTransition(save_, to), "no transition of a save " + std::string(SaveStateName(save_)) + " -> " +
                                              std::string(SaveStateName(to)) + " in " + std::string(PhaseName(phase_)));
  save_ = to;
}

void ControllerCore::Ask(Rank rank, ControllerMessage message) {
  Member& member = At(rank);
  KINTSUGI_CHECK(member.life == Life::kReady,
                 "rank " + rank.ToString() + " is asked, and waited for, and is not there");
  members_.SetWaiting(member, true);
  member.wait_began = now_;
  auto* const order = std::get_if<PhaseOrder>(&message);
  if (order && incident_) {
    order->fault_ranks = NamedFaults();
    order->replaced_ranks = replaced_;
    if (order->rung == Rung::kResume) order->rung = decision_.rung;
  }
  if (order && !unregistered_.empty()) {
    order->unregistered = unregistered_.keys();
    unregistered_.TakeFrom(&member.registry);
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
  members_.SetWaiting(member, false);
  if (incident_) incident_->rank_spans.push_back({rank, phase, attempt_, member.wait_began, now_});
}

void ControllerCore::Drop(Rank rank, const std::string& why) {
  ++dropped_;
  out_.push_back(Notice{rank, "message dropped: " + why});
}

std::vector<Rank> ControllerCore::LiveRanks() const {
  return members_.Where([](const Member& m) { return m.life == Life::kReady; });
}

}  // namespace kintsugi::core
