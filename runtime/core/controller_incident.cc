// The first half of an incident: signals, CONFIRM, LOCK, STOP, and the choice of a rung. A fault in any later phase
// adds to the broken set and comes back here: recovery from faults during recovery is this same path.
#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// Of the layouts that the rank holds, those that a damaged tensor is of: all, where its registry does not say.
std::vector<int> LayoutsOf(const RegistrySummary& registry, const std::string& key, std::vector<int> held) {
  for (const TensorSummary& tensor : registry.tensors)
    if (tensor.key == key) return {tensor.layout};
  return held;
}

// More attempts than any sequence of real faults needs: something is wrong that recovery cannot mend.
constexpr int kAttemptsMax = 100;
// So many are told of in an incident's record.
constexpr int kAttemptsTold = 16;

}  // namespace

std::vector<RungReason> ReasonsOf(const IncidentRecord& record) {
  std::vector<RungReason> reasons;
  for (const AttemptRecord& attempt : record.earlier)
    if (attempt.rung)
      reasons.push_back({*attempt.rung, Refusal::kChosen,
                         "tried in attempt " + std::to_string(attempt.attempt) + ", which ended: " + attempt.ended_by});
  reasons.insert(reasons.end(), record.reasons.begin(), record.reasons.end());
  return reasons;
}

void ControllerCore::OpenIncident(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  IncidentRecord record;
  record.id = ++incident_count_;
  record.signal = kind;
  record.cause = text;
  record.ranks.push_back(rank);
  record.term = term_;
  record.fault_at = std::min(since, now_);
  record.detected_at = now_;
  for (const Member& member : members_)
    if (ever_ran_) record.begun = std::max(record.begun.value_or(kintsugi::Step()), member.begun);
  incident_ = record;
  majority_.OnIncident();
  proven_ = false;
  healable_ = false;
  attempt_ = 0;
  tried_.reset();
  had_its_time_ = false;
  decision_ = {};
  choice_ = {};
  moves_.clear();
}

void ControllerCore::Suspect(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  out_.push_back(Notice{rank, "signal " + std::string(FaultKindName(kind)) + ": " + text});
  if (taking_over_) {
    if (kind != FaultKind::kConnectionLost && !incident_) OpenIncident(rank, kind, text, since);
    return;
  }
  // In any other phase what is suspected is either part of the incident or comes to light when a wait runs out.
  if (phase_ != Phase::kRunning && phase_ != Phase::kConfirm) return;
  if (phase_ == Phase::kRunning) {
    if (incident_) CloseIncident();  // not all had resumed; this is a new one
    OpenIncident(rank, kind, text, since);
    SetPhase(Phase::kConfirm, text);
    deadline_ = now_ + policy_.ConfirmWindow();
    healable_ = true;
  }
  if (kind != FaultKind::kConnectionLost) healable_ = false;
}

void ControllerCore::Fault(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  if (phase_ == Phase::kEnded) return;
  RecordFault(rank, kind, text, since);
  EnterLock(text);
}

void ControllerCore::RecordFault(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  if (incident_ && phase_ == Phase::kRunning) CloseIncident();  // not all had resumed; this is a new one
  if (!incident_) OpenIncident(rank, kind, text, since);
  auto& causes = incident_->ranks;
  incident_->fault_at = std::min(incident_->fault_at, since);
  if (!std::exchange(proven_, true)) {
    // What was seen first, if anything, was the echo; this is the cause.
    incident_->signal = kind;
    incident_->cause = text;
    causes.clear();
  }
  if (std::find(causes.begin(), causes.end(), rank) == causes.end()) causes.push_back(rank);
  out_.push_back(Notice{rank, "fault " + std::string(FaultKindName(kind)) + ": " + text});
  if (kind != FaultKind::kHandlerFailed)
    for (Member& member : members_) member.handler_failures = 0;
  MaybeRespawn(rank);
  if (phase_ == Phase::kRunning || (phase_ == Phase::kAdmit && !ever_ran_)) SetPhase(Phase::kConfirm, text);
}

void ControllerCore::MarkDead(Rank rank) {
  Member& member = At(rank);
  if (member.life != Life::kAbsent) {
    if (!member.unconfirmed) member.given_up_at = now_;
    member.unconfirmed = member.incarnation;
  }
  // Whoever comes after it must not take its memory for good.
  if (member.needs_repair && !member.fresh) member.doubted = member.incarnation;
  if (member.held && member.held->of <= member.doubted) member.held.reset();
  members_.SetLife(member, Life::kDead);
  members_.SetClosed(member);
  members_.SetWaiting(member, false);
  member.parked = false;
  member.fresh = true;
  member.adopted = false;
  member.from_spare = false;
  member.needs_repair = ever_ran_;  // before that a new process registers the state anew
  member.damaged_keys.clear();
  member.digest_mismatches = 0;
  member.handler_failures = 0;
  member.save_failed = false;
  member.finished.reset();
  member.save_point.reset();
  gate_.Forget(rank);
  detector_.Forget(rank);
  snapshots_.Forget(rank);
}

void ControllerCore::MaybeRespawn(Rank rank) {
  Member& member = At(rank);
  if (member.life != Life::kDead || member.respawns >= policy_.max_respawns || stop_requested_ ||
      !repeats_.hopeless().empty())
    return;
  // Started at once: its start-up runs beside LOCK, STOP and CLEAN.
  ++member.respawns;
  if (!policy_.can_spawn) {
    members_.SetLife(member, Life::kAbsent);
    return;
  }
  member.incarnation = member.incarnation.Next();
  members_.SetLife(member, Life::kStarting);
  member.from_spare = spares_.Take(rank);
  out_.push_back(SpawnProcess{rank, member.incarnation});
}

void ControllerCore::EnterLock(const std::string& reason) {
  if (taking_over_) return;  // once it is known who is there
  KINTSUGI_CHECK(incident_.has_value(), "LOCK without an incident");
  if (attempt_ >= kAttemptsMax + 2 * policy_.world_size)
    return EndWithoutSave("gave up after " + std::to_string(attempt_) + " attempts at one incident; last: " + reason);
  CancelSave();
  NoteAttempt(reason);
  SetPhase(Phase::kLock, reason);
  ++attempt_;
  generation_ = generation_.Next();
  incident_->attempts = attempt_;
  incident_->generation = generation_;
  incident_->parked_at.reset();
  incident_->rebuilt_at.reset();
  incident_->repaired_at.reset();
  moves_.clear();
  replaced_.clear();
  snapshots_.Disarm();
  for (size_t r = 0; r < members_.size(); ++r) {
    Member& member = members_[r];
    // Until it answers, a rank offers nothing; a process that joins during LOCK answers to the next one.
    member.report = {Rank(static_cast<int32_t>(r)), GateState::kCommitted, {}, false};
    members_.SetResumed(member, false);
    member.finished.reset();
    member.save_point.reset();
    member.left_save_point.reset();
    if (member.life == Life::kReady) member.parked = false;
  }
  gate_.Close();
  rescued_.clear();
  Order(LiveRanks(), policy_.LockLimit(), [](Rank) { return LockOrder{}; });
  if (NobodyWaits()) AfterLock();
}

void ControllerCore::NoteAttempt(const std::string& ended_by) {
  if (attempt_ == 0) return;
  auto& earlier = incident_->earlier;
  earlier.push_back({attempt_, std::exchange(tried_, std::nullopt), ended_by});
  // The first ones tell how it began, the newest where it got to.
  if (earlier.size() > kAttemptsTold) earlier.erase(earlier.begin() + kAttemptsTold / 2);
}

void ControllerCore::OnLockReply(Rank rank, const LockReply& reply) {
  Member& member = At(rank);
  if (phase_ != Phase::kLock || !member.waiting) return;
  Heard(rank, phase_);
  // Later attempts lock ranks that stand where the earlier ones left them.
  if (ever_ran_ && attempt_ == 1) incident_->begun = std::max(incident_->begun.value_or(kintsugi::Step()), reply.step);
  const bool damaged_only = member.needs_repair && !member.damaged_keys.empty() &&
                            reply.state != GateState::kUpdating && reply.state != GateState::kTorn;
  // A rank with a few damaged tensors still stands at a step, but its shard is not an offer.
  member.report = {rank, reply.state, reply.step, reply.valid && !member.needs_repair};
  if (member.needs_repair && !damaged_only) member.damaged_keys.clear();
  if (NobodyWaits()) AfterLock();
}

void ControllerCore::AfterLock() {
  if (!majority_.MayGoOn(members_, now_)) return AwaitMajority();
  std::vector<LockReport> reports;
  for (Rank rank : LiveRanks()) {
    const Member& member = At(rank);
    KINTSUGI_CHECK(!member.report.valid || !member.needs_repair,
                   "rank " + rank.ToString() + " needs a repair and counts as holding a step");
    reports.push_back(member.report);
  }
  AddHeld(&reports);
  choice_ = replicas_known_ ? ChooseStep(reports, replicas_) : StepChoice{};
  if (!choice_.step && AwaitExits()) return;
  SetPhase(Phase::kStop, std::string(StepReasonName(choice_.reason)));
  // Who hangs has had its time already: one rank the learnt limit, all together the longest healthy step.
  const bool hung = std::exchange(had_its_time_, false) || incident_->signal == FaultKind::kHang;
  Duration limit = hung ? std::min(hangs_.Limit(), policy_.StopLimit()) : policy_.StopLimit();
  // What is left of the grace period is for writing.
  Duration stop_limit = policy_.StopHandlerLimit();
  if (stop_requested_) limit = std::min(limit, policy_.grace / 4), stop_limit = std::min(stop_limit, policy_.grace / 8);
  const StopOrder order{choice_.step.value_or(kintsugi::Step()), choice_.step.has_value(), stop_limit, limit,
                        NamedFaults()};
  // Who exceeds one of the two limits is told of by its agent; here their sum is the bound.
  Order(LiveRanks(), order.stop_limit + order.park_limit, [&](Rank) { return order; });
  if (NobodyWaits()) AfterStop();
}

void ControllerCore::OnParked(Rank rank, const Parked& parked) {
  Member& member = At(rank);
  if (phase_ != Phase::kStop || !member.waiting) return;
  Heard(rank, phase_);
  member.parked = true;
  const bool at_step = choice_.step && parked.state == GateState::kCommitted && parked.step == *choice_.step;
  if (!ever_ran_) {  // nobody stands at a step yet
    if (NobodyWaits()) AfterStop();
    return;
  }
  // One with damaged tensors that went on at its gate has computed with them.
  const bool spread = member.report.state == GateState::kAtGate && choice_.step == member.report.step;
  if (!parked.valid || !at_step || (member.needs_repair && spread)) {
    member.needs_repair = true;
    member.damaged_keys.clear();  // more than the named tensors
  }
  if (NobodyWaits()) AfterStop();
}

IncidentSnapshot ControllerCore::Snapshot() const {
  IncidentSnapshot snapshot;
  snapshot.step = choice_;
  const Checkpoint* checkpoint = checkpoints_.NewestBefore(suspect_from_);
  snapshot.checkpoint_exists = checkpoint != nullptr;
  if (checkpoint) snapshot.checkpoint = checkpoint->step;
  if (choice_.step && IsSuspect(*choice_.step)) snapshot.suspect_from = suspect_from_;
  snapshot.save_possible = !policy_.save_directory.empty();
  snapshot.leaving = !repeats_.hopeless().empty() ? repeats_.hopeless()
                     : majority_.minority()       ? "no majority of the ranks answers: save and leave"
                     : stop_requested_            ? "a stop was asked for: save and leave"
                                                  : "";
  if (policy_.verify_every > 0) snapshot.compared = agreed_step_;
  for (size_t r = 0; r < members_.size(); ++r) {
    const Member& member = members_[r];
    RankSnapshot rank;
    rank.rank = Rank(static_cast<int32_t>(r));
    rank.respawns_left = policy_.max_respawns - member.respawns;
    rank.start_failure = member.start_failure;
    rank.replacement_started = member.life != Life::kDead;
    rank.held = member.held;
    rank.rescues_left = kRescuesMax - member.rescues;
    rank.spare_takes_over = member.from_spare;
    // A new process has no state yet: for the choice of rung its predecessor's process is what was lost.
    if (member.life != Life::kReady || member.fresh)
      rank.condition = Condition::kGone;
    else if (!member.needs_repair)
      rank.condition = Condition::kGood;
    else
      rank.condition = member.damaged_keys.empty() ? Condition::kTorn : Condition::kDamaged;
    for (const std::string& key : member.damaged_keys)
      for (int layout : LayoutsOf(member.registry, key, replicas_.LayoutsOf(rank.rank)))
        rank.damaged[layout].push_back(key);
    rank.can_write = !member.save_failed;
    snapshot.ranks.push_back(std::move(rank));
  }
  return snapshot;
}

void ControllerCore::AfterStop() {
  incident_->parked_at = now_;
  CountFailures();
  if (!ever_ran_) return majority_.minority() ? End(kExitStartup, "no majority of the ranks came") : RestartStart();
  IncidentSnapshot snapshot = Snapshot();
  const SnapshotTable::Usable usable = snapshots_.FindUsable(replicas_, suspect_from_);
  snapshot.snapshot = usable.step;
  snapshot.no_snapshot = usable.why;
  decision_ = DecideRung(snapshot, replicas_);
  if (decision_.rung == Rung::kRetry && IsRetriedInVain()) {
    snapshot.leaving = repeats_.hopeless();
    decision_ = DecideRung(snapshot, replicas_);
  }
  if (decision_.rung == Rung::kExit && LacksState(snapshot, replicas_) && AwaitExits()) return;
  incident_->reasons = decision_.reasons;
  incident_->rung = decision_.rung;
  tried_ = decision_.rung;
  if (decision_.rung == Rung::kReload) {
    reload_snapshot_ = ReloadsFromSnapshot(snapshot);
    if (!reload_snapshot_) reload_ = *checkpoints_.NewestBefore(suspect_from_);
    choice_ = {reload_snapshot_ ? *snapshot.snapshot : reload_.step, StepReason::kAbandoned};
    for (Member& member : members_) member.needs_repair = true, member.damaged_keys.clear();
  }
  incident_->step = choice_.step;
  if (decision_.rung == Rung::kDump) return EnterDump();
  if (decision_.rung == Rung::kExit) {
    const std::string why = !repeats_.hopeless().empty() ? repeats_.hopeless()
                            : decision_.reasons.size() < 2
                                ? ""
                                : decision_.reasons[decision_.reasons.size() - 2].text;  // the last rung before it
    return EndWithoutSave(FirstCause() + "no rung of the ladder holds: " + why);
  }
  if (decision_.rung != Rung::kReload)
    moves_ = PlanMoves(snapshot, replicas_);
  else if (reload_snapshot_)
    moves_ = snapshots_.table().PlanMoves(replicas_, *choice_.step);
  EnterClean(std::string(RungName(decision_.rung)));
}

void ControllerCore::RestartStart() {
  // Nothing is lost yet: everybody starts from the registered state or the checkpoint. Where that is damaged, a new
  // process registers it again.
  for (Rank rank : LiveRanks())
    if (At(rank).needs_repair) {
      Kill(rank, "its state was damaged before the run began");
      MaybeRespawn(rank);
    }
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].life == Life::kDead)
      return End(kExitStartup, NoRespawnText(Rank(static_cast<int32_t>(r)), members_[r].start_failure));
  choice_ = {policy_.resume_step, StepReason::kAbandoned};
  decision_ = {Rung::kRespawn, {}};
  incident_->step = choice_.step;
  incident_->rung = Rung::kRespawn;
  for (Member& member : members_) member.needs_repair = false, member.fresh = false;
  EnterClean("the run has not begun");
}

std::string ControllerCore::FirstCause() const {
  if (!incident_ || !repeats_.hopeless().empty()) return "";
  std::string text;
  for (Rank rank : incident_->ranks) {
    if (!text.empty() && text.size() > 40) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "rank " : ", ") + rank.ToString();
  }
  return text + (text.empty() ? "" : ": ") + incident_->cause + "; ";
}

// Whom an incident began with, as handlers are told it: the first ones, where a whole storm did.
std::vector<Rank> ControllerCore::NamedFaults() const {
  if (!incident_) return {};
  std::vector<Rank> named(
      incident_->ranks.begin(),
      incident_->ranks.begin() + static_cast<ptrdiff_t>(std::min(incident_->ranks.size(), kFaultRanksNamed)));
  std::sort(named.begin(), named.end());
  return named;
}

void ControllerCore::EnterClean(const std::string& reason) {
  SetPhase(Phase::kClean, reason);
  const PhaseOrder order{.phase = Phase::kClean,
                         .step = *choice_.step,
                         .limit = phase_times_.Limit(Phase::kClean, policy_.HandlerLimit())};
  Order(members_.Where([](const Member& m) { return m.life == Life::kReady && m.parked; }), order.limit,
        [&](Rank) { return order; });
  if (NobodyWaits()) AfterClean();
}

}  // namespace kintsugi::core
