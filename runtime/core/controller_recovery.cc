// The second half of an incident: CLEAN, ADMIT, REBUILD, REPAIR and, after VERIFY (controller_verify.cc) and ROLLBACK,
// the way back to RUNNING. A run's start walks the same way from ADMIT on.
#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// A phase can fail as the echo of a death that has not been seen yet; the cause gets this long to show itself.
constexpr Duration kEchoWindow = std::chrono::milliseconds(50);

}  // namespace

void ControllerCore::AfterClean() {
  if (!AllReady()) return EnterAdmit("replacements are on their way");
  SetPhase(Phase::kRebuild, "all ranks are ready");
  AfterAdmit();
}

void ControllerCore::EnterAdmit(const std::string& reason) {
  SetPhase(Phase::kAdmit, reason);
  deadline_ = now_ + policy_.join_timeout;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].life == Life::kDead) {
      const Rank rank(static_cast<int32_t>(r));
      MaybeRespawn(rank);
      if (At(rank).life != Life::kDead) continue;
      const std::string text = NoRespawnText(rank, At(rank).start_failure);
      return ever_ran_ ? EnterLock(text) : End(kExitStartup, text);
    }
  if (AllReady()) AfterAdmit();
}

std::string ControllerCore::FirstRegistryError() const {
  for (const auto& shard : replicas_.shards())
    for (Rank holder : shard.holders) {
      if (!members_[static_cast<size_t>(holder.value())].registered ||
          !members_[static_cast<size_t>(shard.holders.front().value())].registered)
        continue;  // lost with the controller before this one
      const Status same = CompareReplicas(shard.layout, shard.holders.front(),
                                          members_[static_cast<size_t>(shard.holders.front().value())].registry, holder,
                                          members_[static_cast<size_t>(holder.value())].registry);
      if (!same.ok()) return same.message();
    }
  return "";
}

void ControllerCore::OnMisfit(const std::string& error) {
  // The survivors have proved that they fit together: it is the newcomers that do not.
  const std::vector<Rank> newcomers = Ranks([](const Member& m) { return m.fresh; });
  if (!ever_ran_ || newcomers.empty()) return End(kExitStartup, error);
  GiveUp(newcomers, FaultKind::kHandlerFailed, now_, error);
}

Status ControllerCore::MapReplicas() {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (size_t r = 0; r < members_.size(); ++r) claims[Rank(static_cast<int32_t>(r))] = members_[r].layouts;
  if (policy_.takes_over) ClaimForLost(&claims);
  Result<ReplicaMap> map = ReplicaMap::Build(policy_.world_size, claims);
  KINTSUGI_RETURN_IF_ERROR(map.status());
  const ReplicaMap before = std::exchange(replicas_, std::move(map).value());
  const std::string error = FirstRegistryError();
  if (!error.empty()) {
    replicas_ = before;  // what is held is still held as the survivors registered it
    return {StatusCode::kInvalidArgument, error};
  }
  replicas_known_ = true;
  snapshot_partners_.clear();
  registries_changed_ = false;
  return Status::Ok();
}

void ControllerCore::AfterAdmit() {
  // A replacement that registers what its predecessor did changes nothing.
  if (registries_changed_)
    if (const Status mapped = MapReplicas(); !mapped.ok()) return OnMisfit(mapped.message());
  if (phase_ == Phase::kAdmit) SetPhase(Phase::kRebuild, "all ranks are ready");
  if (ever_ran_) replaced_ = Ranks([](const Member& m) { return m.fresh; });
  replaced_.resize(std::min(replaced_.size(), kFaultRanksNamed));
  if (!choice_.step) choice_ = {policy_.resume_step, StepReason::kAbandoned};
  const Duration limit = phase_times_.Limit(Phase::kRebuild, policy_.HandlerLimit());
  Order(LiveRanks(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRebuild,
                      .step = *choice_.step,
                      .limit = limit,
                      .partners = replicas_.Partners(rank)};
  });
}

bool ControllerCore::Reloads() const {
  return ever_ran_ ? decision_.rung == Rung::kReload : policy_.resume_step.value() > 0 || policy_.resume_by_trainer;
}

void ControllerCore::EnterRepair() {
  if (incident_) incident_->rebuilt_at = now_;
  const bool reload = Reloads();
  const bool from_snapshot = reload && ever_ran_ && reload_snapshot_;
  const std::string& directory = ever_ran_ ? reload_.directory : policy_.resume_directory;
  SetPhase(Phase::kRepair, from_snapshot ? "from the in-memory snapshot of step " + choice_.step->ToString()
                           : reload      ? "from " + directory
                                         : std::to_string(moves_.size()) + " moves");
  if (!reload && moves_.empty()) return AfterPhase();
  for (const RepairMove& move : moves_)
    if (move.adopt) At(move.destination).adopted = true;
  if (incident_)
    for (const RepairMove& move : moves_)
      for (Rank source : move.sources)
        if (std::find(incident_->sources.begin(), incident_->sources.end(), source) == incident_->sources.end())
          incident_->sources.push_back(source);
  Order(LiveRanks(), policy_.RepairLimit(), [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRepair,
                      .step = *choice_.step,
                      .rung = reload ? Rung::kReload : decision_.rung,
                      .limit = policy_.RepairLimit(),
                      .partners = replicas_.Partners(rank),
                      .moves = moves_,
                      .directory = reload && !from_snapshot ? directory : std::string(),
                      .from_snapshot = from_snapshot};
  });
}

void ControllerCore::OnPhaseDone(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  if (save_ == SaveState::kVerifying || save_ == SaveState::kComparing || save_ == SaveState::kFinalVerify)
    return OnDigests(rank, done);
  if (save_ == SaveState::kRescuing) return OnRescued(rank, done);
  if (save_ == SaveState::kWriting || save_ == SaveState::kRenaming) return OnSaveDone(rank, done);
  if (done.phase != phase_ || !member.waiting) return;
  Heard(rank, phase_);
  if (done.code != StatusCode::kOk) return OnPhaseFailed(rank, done);
  if (incident_) incident_->bytes_moved += done.bytes_moved;
  if (phase_ == Phase::kRepair && policy_.resume_by_trainer && !ever_ran_) loaded_[rank] = done.loaded;
  if (phase_ == Phase::kVerify) digests_[static_cast<size_t>(rank.value())] = done.digests;
  if (!NobodyWaits() && relock_at_ == TimePoint::Max()) LimitTheLast();
  if (!NobodyWaits() || relock_at_ != TimePoint::Max()) return;
  phase_times_.Note(phase_, now_ - phase_began_);
  AfterPhase();
}

// Before the first incident nobody knows how long CLEAN takes here. All do the same in it: those who are done tell.
void ControllerCore::LimitTheLast() {
  if (phase_ != Phase::kClean || 2 * waiting_count_ > policy_.world_size) return;
  const Duration limit = phase_times_.Within(now_ - phase_began_, policy_.HandlerLimit());
  deadline_ = std::min(deadline_, phase_began_ + limit + policy_.AnswerSlack());
}

void ControllerCore::OnPhaseFailed(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  out_.push_back(Notice{rank, std::string(PhaseName(done.phase)) + " failed: " + done.text});
  const bool echo = done.code == StatusCode::kCommFailure || done.code == StatusCode::kCancelled ||
                    done.code == StatusCode::kInterrupted || done.code == StatusCode::kDeadlineExceeded;
  // It is the checkpoint that failed, not the rank: the one before it is tried, or nothing is left to try.
  const bool unreadable = done.code == StatusCode::kDataLoss || done.code == StatusCode::kNotFound;
  // It fits no rank of this program: another model, objects that do not say how they go on. Or it may not be read.
  // Nothing changes by trying again.
  const bool misfits = (done.code == StatusCode::kInvalidArgument || done.code == StatusCode::kFailedPrecondition ||
                        done.code == StatusCode::kPermissionDenied) &&
                       !(ever_ran_ && reload_snapshot_);
  if (phase_ == Phase::kRepair && Reloads() && (unreadable || misfits)) {
    if (ever_ran_ && reload_snapshot_) return OnSnapshotUnreadable(rank, done.text);
    if (!ever_ran_) return End(kExitStartup, "cannot resume from " + policy_.resume_directory + ": " + done.text);
    PutAside(reload_, done.text);
    return EnterLock(checkpoint_damage_);
  }
  // Nor does a configuration that its handlers refuse become another one in a new process.
  if (!ever_ran_ && done.code == StatusCode::kInvalidArgument)
    return End(kExitStartup,
               "rank " + rank.ToString() + " cannot start: " + std::string(PhaseName(done.phase)) + ": " + done.text);
  if (done.phase == Phase::kRepair && Adopts(rank)) DoubtHeld(rank);
  if (!incident_) OpenIncident(rank, FaultKind::kHandlerFailed, done.text, now_);
  member.handler_failures += echo ? kEchoFailure : kOwnFailure;
  if (member.handler_failures >= kHandlerFailuresMax) {
    const std::string text = "its handlers failed again and again, last: " + done.text;
    for (Member& other : members_) other.handler_failures = 0;
    return GiveUp({rank}, FaultKind::kHandlerFailed, now_, text);
  }
  if (echo) {
    relock_at_ = now_ + kEchoWindow;
    ran_out_ = ran_out_ || done.code == StatusCode::kDeadlineExceeded;
    return;
  }
  // A failed repair leaves its receiver in doubt; a source is only read, and other handlers touch derived things only.
  if (done.phase == Phase::kRepair) member.damaged_keys.clear();
  Fault(rank, FaultKind::kHandlerFailed, done.text, now_);
}

void ControllerCore::AfterPhase() {
  switch (phase_) {
    case Phase::kClean:
      return AfterClean();
    case Phase::kRebuild:
      return EnterRepair();
    case Phase::kRepair: {
      if (policy_.resume_by_trainer && !ever_ran_)
        if (const Status told = TakeLoaded(); !told.ok()) return End(kExitStartup, told.message());
      if (incident_) incident_->repaired_at = now_;
      digests_.assign(members_.size(), {});
      SetPhase(Phase::kVerify, "compare digests in each replica group");
      const PhaseOrder order{.phase = Phase::kVerify,
                             .step = *choice_.step,
                             .limit = phase_times_.Limit(Phase::kVerify, policy_.RepairLimit())};
      return Order(LiveRanks(), order.limit, [&](Rank) { return order; });
    }
    case Phase::kVerify:
      return AfterVerify();
    case Phase::kRollback:
      return EnterRunning();
    default:
      KINTSUGI_CHECK(false, "no phase follows " + std::string(PhaseName(phase_)));
  }
}

// The step from which the run goes on is the one that every rank's loader found.
Status ControllerCore::TakeLoaded() {
  const auto loaded = std::exchange(loaded_, {});
  if (loaded.empty()) return {StatusCode::kInternal, "nobody loaded " + policy_.resume_directory};
  const auto& [first, step] = *loaded.begin();
  for (const auto& [rank, other] : loaded)
    if (other != step || step.value() == 0)
      return {StatusCode::kFailedPrecondition,
              "cannot resume from " + policy_.resume_directory +
                  (step.value() == 0 ? ": the repair handler of rank " + first.ToString() +
                                           " did not say which step it loaded (HandlerContext::loaded_step)"
                                     : ": rank " + first.ToString() + " loaded step " + step.ToString() + ", rank " +
                                           rank.ToString() + " step " + other.ToString())};
  choice_ = {step, StepReason::kAbandoned};
  checkpoints_ = {{step, policy_.resume_directory}};
  return Status::Ok();
}

void ControllerCore::EnterRunning() {
  SetPhase(Phase::kRunning, "step " + choice_.step->ToString());
  ever_ran_ = true;
  resume_step_ = *choice_.step;
  suspect_from_.reset();
  snapshots_.DropAfter(resume_step_);
  if (agreed_step_ > resume_step_) agreed_step_ = kintsugi::Step(), agreed_.clear();  // of a history that was given up
  out_.push_back(StepDecided{resume_step_});
  unresumed_ = 0;
  for (Rank rank : LiveRanks()) {
    Member& member = At(rank);
    member.resumed = false;
    ++unresumed_;
    member.parked = false;
    member.handler_failures = 0;
    member.begun = resume_step_;
    member.wait_began = now_;
    SendTo(rank, ResumeOrder{resume_step_});
  }
  AwaitResumed();
  BeginRequestedSave();
}

void ControllerCore::AwaitResumed() {
  if (unresumed_ > 0) deadline_ = now_ + policy_.HandlerLimit();
}

void ControllerCore::OnResumed(Rank rank) {
  Member& member = At(rank);
  if ((phase_ != Phase::kRunning && phase_ != Phase::kConfirm) || member.resumed) return;
  member.resumed = true;
  --unresumed_;
  if (phase_ == Phase::kConfirm) return;
  if (incident_) Heard(rank, Phase::kRunning);
  if (unresumed_ > 0) return;
  deadline_ = TimePoint::Max();
  WatchForHangs();
  ArmSnapshot();
  if (!incident_) return;
  incident_->resumed_at = now_;
  CloseIncident();
}

void ControllerCore::CloseIncident() {
  incident_->phases.push_back({phase_, attempt_, generation_, phase_began_, now_});
  out_.push_back(IncidentClosed{*incident_});
  incident_.reset();
}

}  // namespace kintsugi::core
