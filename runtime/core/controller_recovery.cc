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

// What handlers have to say of an incident: beside the reasons for its rung, each sentence once.
constexpr size_t kReasonsMax = 32;
void Remark(IncidentRecord& incident, const std::string& text) {
  auto& reasons = incident.reasons;
  const auto said = [&](const RungReason& reason) { return reason.text == text; };
  if (text.empty() || !incident.rung || reasons.size() >= kReasonsMax ||
      std::any_of(reasons.begin(), reasons.end(), said))
    return;
  reasons.push_back({*incident.rung, Refusal::kChosen, text});
}

}  // namespace

void ControllerCore::AfterClean() {
  if (!members_.all_ready()) return EnterAdmit("replacements are on their way");
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
  if (members_.all_ready()) AfterAdmit();
}

std::string ControllerCore::FirstRegistryError() const {
  for (const auto& shard : replicas_.shards())
    for (Rank holder : shard.holders) {
      if (!members_.At(holder).registered || !members_.At(shard.holders.front()).registered)
        continue;  // lost with the controller before this one
      const Status same =
          CompareReplicas(shard.layout, shard.holders.front(), members_.At(shard.holders.front()).registry, holder,
                          members_.At(holder).registry);
      if (!same.ok()) return same.message();
    }
  return "";
}

void ControllerCore::OnMisfit(const std::string& error) {
  // The survivors have proved that they fit together: it is the newcomers that do not.
  const std::vector<Rank> newcomers = members_.Where([](const Member& m) { return m.fresh; });
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
  snapshots_.ForgetPartners();
  registries_changed_ = false;
  return Status::Ok();
}

void ControllerCore::AfterAdmit() {
  ForgetUnregistered();
  // A replacement that registers what its predecessor did changes nothing.
  if (registries_changed_)
    if (const Status mapped = MapReplicas(); !mapped.ok()) return OnMisfit(mapped.message());
  if (phase_ == Phase::kAdmit) SetPhase(Phase::kRebuild, "all ranks are ready");
  if (ever_ran_) replaced_ = members_.Where([](const Member& m) { return m.fresh; });
  replaced_.resize(std::min(replaced_.size(), kFaultRanksNamed));
  if (!choice_.step) choice_ = {policy_.resume_step, StepReason::kAbandoned};
  const Duration limit = phase_times_.Limit(Phase::kRebuild, policy_.HandlerLimit());
  Order(LiveRanks(), limit, [&](Rank rank) {
    return PhaseOrder{
        .phase = Phase::kRebuild, .step = *choice_.step, .limit = limit, .partners = replicas_.Partners(rank)};
  });
}

bool ControllerCore::Reloads() const {
  return ever_ran_ ? decision_.rung == Rung::kReload : policy_.resume_step.value() > 0 || policy_.resume_by_trainer;
}

// Every move has a source, and none is a rank in doubt, unless it adopts before it sends. A snapshot's sources go back to
// it themselves.
void ControllerCore::CheckSources(bool from_snapshot) const {
  for (const RepairMove& move : moves_) {
    const auto what = [&] {
      return "layout " + std::to_string(move.layout) + " of rank " + move.destination.ToString() + " is repaired from ";
    };
    KINTSUGI_CHECK(move.adopt || !move.sources.empty(), what() + "nobody");
    for (Rank source : move.sources)
      KINTSUGI_CHECK(from_snapshot || !members_.At(source).needs_repair || Adopts(source),
                     what() + "rank " + source.ToString() + ", which is in doubt itself");
  }
}

void ControllerCore::EnterRepair() {
  ForgetUnregistered();
  if (incident_) incident_->rebuilt_at = now_;
  const bool reload = Reloads();
  const bool from_snapshot = reload && ever_ran_ && reload_snapshot_;
  const std::string& directory = ever_ran_ ? reload_.directory : policy_.resume_directory;
  SetPhase(Phase::kRepair, from_snapshot ? "from the in-memory snapshot of step " + choice_.step->ToString()
                           : reload      ? "from " + directory
                                         : std::to_string(moves_.size()) + " moves");
  if (!reload && moves_.empty()) return AfterPhase();
  CheckSources(from_snapshot);
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
  if (Compares(save_)) return OnDigests(rank, done);
  if (save_ == SaveState::kRescuing) return OnRescued(rank, done);
  if (Writes(save_)) return OnSaveDone(rank, done);
  if (done.phase != phase_ || !member.waiting) return;
  Heard(rank, phase_);
  Unregister(rank, done.unregistered);
  if (done.code != StatusCode::kOk) return OnPhaseFailed(rank, done);
  if (incident_) {
    incident_->bytes_moved += done.bytes_moved;
    Remark(*incident_, done.text);
  }
  if (phase_ == Phase::kRepair && policy_.resume_by_trainer && !ever_ran_) loaded_[rank] = done.loaded;
  if (phase_ == Phase::kVerify) digests_[static_cast<size_t>(rank.value())] = done.digests;
  if (!NobodyWaits() && relock_at_ == TimePoint::Max()) LimitTheLast();
  if (!NobodyWaits() || relock_at_ != TimePoint::Max()) return;
  phase_times_.Note(phase_, now_ - phase_began_);
  AfterPhase();
}

// Before the first incident nobody knows how long CLEAN takes here. All do the same in it: those who are done tell.
void ControllerCore::LimitTheLast() {
  if (phase_ != Phase::kClean || 2 * members_.waiting() > policy_.world_size) return;
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
    checkpoints_.PutAside(reload_, done.text);
    return EnterLock(checkpoints_.damage());
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
      return AllUnregistered() ? EnterRunning() : void();
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
  checkpoints_.Begin({{step, policy_.resume_directory}});
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
  KINTSUGI_CHECK(members_.all_ready(), "the run goes on while a rank is not there");
  for (Rank rank : LiveRanks()) {
    Member& member = At(rank);
    KINTSUGI_CHECK(!member.needs_repair, "the run goes on while rank " + rank.ToString() + " needs a repair");
    members_.SetResumed(member, false);
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
  if (members_.unresumed() > 0) deadline_ = now_ + policy_.HandlerLimit();
}

void ControllerCore::OnResumed(Rank rank) {
  Member& member = At(rank);
  if ((phase_ != Phase::kRunning && phase_ != Phase::kConfirm) || member.resumed) return;
  members_.SetResumed(member, true);
  if (phase_ == Phase::kConfirm) return;
  if (incident_) Heard(rank, Phase::kRunning);
  if (members_.unresumed() > 0) return;
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
