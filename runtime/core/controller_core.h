// ControllerCore: the one decision maker, as a pure state machine. Step(event, now) returns what is to be done; the
// same object runs in production and in the simulator.
//
// Threads: none; one driver steps it. Time: monotonic instants come in as arguments, nothing is read.
// Errors: a message that does not fit (older generation, unknown incarnation, wrong phase) is dropped and counted. A
// transition outside the table is a failed CHECK.
// Invariants: one generation per attempt; every wait has a deadline (`deadline_`); a rank whose state is not known to
// be that of S is in `needs_repair` until VERIFY has passed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/checkpoint_list.h"
#include "runtime/core/control_gate.h"
#include "runtime/core/controller_types.h"
#include "runtime/core/detector.h"
#include "runtime/core/digest_verdict.h"
#include "runtime/core/hang_detector.h"
#include "runtime/core/majority.h"
#include "runtime/core/pause_rounds.h"
#include "runtime/core/policy.h"
#include "runtime/core/repeats.h"
#include "runtime/core/roster.h"
#include "runtime/core/save_request.h"
#include "runtime/core/save_state.h"
#include "runtime/core/slow_ranks.h"
#include "runtime/core/snapshot_rounds.h"
#include "runtime/core/spare_counts.h"
#include "runtime/core/unregistered.h"

namespace kintsugi::core {

class ControllerCore {
 public:
  // REQUIRES: policy.Validate() is ok.
  ControllerCore(Policy policy, Term term);

  // Begins the run: spawns every rank where the policy says so and waits for all to be ready.
  std::vector<ControllerAction> Start(TimePoint now);
  std::vector<ControllerAction> Step(const ControllerEvent& event, TimePoint now);

  using Life = core::Life;
  using Member = core::Member;
  Phase phase() const { return phase_; }
  Generation generation() const { return generation_; }
  Term term() const { return term_; }
  const std::vector<Member>& members() const { return members_.all(); }
  const Policy& policy() const { return policy_; }
  uint64_t incidents() const { return incident_count_; }
  int ranks_ready() const { return members_.ready(); }
  // The one under way; nothing: none is.
  const std::optional<IncidentRecord>& incident() const { return incident_; }
  // How far a slow rank is behind the others; nothing for a rank that is not slow.
  std::optional<Duration> LateBy(Rank rank) const { return slow_.LateBy(rank); }
  // In-memory snapshots: the newest that counts (0: none), and how many attempts counted and did not.
  kintsugi::Step newest_snapshot() const { return snapshots_.table().newest(); }
  uint64_t snapshots_made() const { return snapshots_.made(); }
  uint64_t snapshots_abandoned() const { return snapshots_.abandoned(); }
  // Empty: an operator may have a new process for this rank.
  std::string WhyNotReplaced(Rank rank) const;
  const PauseRounds& pause() const { return pause_; }
  // An operator asked for a pause; the step at which all stand, once they do.
  bool pause_asked() const { return pause_asked_; }
  std::optional<kintsugi::Step> paused_at() const {
    return save_ == SaveState::kPaused ? std::optional(paused_step_) : std::nullopt;
  }
  // Still listening to what it took over.
  bool taking_over() const { return taking_over_; }
  TieRule tie_rule() const { return majority_.rule(); }
  // The run waits for nothing but the processes of these ranks, and has all it needs to begin them on another node.
  bool MayMove(Rank first, int ranks) const;
  // No majority was to be had: what is here saves and leaves.
  bool minority() const { return majority_.minority(); }
  uint64_t dropped_messages() const { return dropped_; }
  // Whatever is waited for has a deadline; in RUNNING nothing need be waited for. True after every step.
  bool WaitsAreBounded() const;
  // Armed faults handed to a rank when it joins. The driver keeps the ledger.
  void SetInjections(Rank rank, std::vector<std::string> injections) { At(rank).injections = std::move(injections); }

 private:
  // A rank whose handlers fail this often in one incident, with no other cause in sight, is given up. An error that may
  // be the echo of another rank's failure weighs half, so that the rank with a cause of its own is always the first to
  // go.
  static constexpr int kEchoFailure = 1;
  static constexpr int kOwnFailure = 2;
  static constexpr int kHandlerFailuresMax = 3 * kOwnFailure;

  // Every rank is told of every one of these.
  static constexpr size_t kFaultRanksNamed = 256;
  // So often is a process of one rank started only to save what is held of it.
  static constexpr int kRescuesMax = 2;
  // While some of many lost ranks still come back, the others are waited for, for at most so many confirmation windows.
  static constexpr int kReturnWindowsMax = 4;

  Member& At(Rank rank) { return members_.At(rank); }
  bool InWorld(Rank rank) const { return members_.Has(rank); }

  // Messages (controller_core.cc).
  void OnMessage(const Header& header, const AgentMessage& message);
  void OnJoin(const Header& header, const JoinRequest& join);
  void OnReady(const Header& header, const Ready& ready);
  void Register(Member& member, const Ready& ready);
  // What this rank's trainer took out of its state.
  void Unregister(Rank rank, const std::vector<std::string>& keys);
  void ForgetUnregistered();
  bool AllUnregistered();
  void OnClosed(const ConnectionClosed& closed);
  void OnExited(const ProcessExited& exited);
  void OnMoved(const RanksMoved& moved);
  void TellAgain(Rank rank);
  void GiveUpLost();
  bool IsLost(const Member& member) const;
  void OnTick();
  void OnDeadline();
  void OnRelock();
  void OnBeat(Rank rank, const Beat& beat, bool current);
  void OnFinished(Rank rank, const Finished& finished);
  void OnFaultReport(Rank rank, const FaultReport& report, bool current);

  // Incident (controller_incident.cc).
  // A signal that proves nothing by itself (a lost connection, a failed collective): opens CONFIRM where nothing else
  // is under way.
  void Suspect(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  void MaybeHeal();
  // A fault: goes to LOCK with a new attempt.
  void Fault(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // The bookkeeping of a fault; the caller goes on to LOCK.
  void RecordFault(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // Kills the ranks: one attempt for all of them.
  void GiveUp(const std::vector<Rank>& ranks, FaultKind kind, TimePoint since, const std::string& text);
  void OpenIncident(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  void MarkDead(Rank rank);
  void MaybeRespawn(Rank rank);
  void EnterLock(const std::string& reason);
  void OnLockReply(Rank rank, const LockReply& reply);
  void AfterLock();
  void OnParked(Rank rank, const Parked& parked);
  void AfterStop();
  IncidentSnapshot Snapshot() const;
  std::vector<Rank> NamedFaults() const;
  // What the incident began with, for last words.
  std::string FirstCause() const;
  bool IsSuspect(kintsugi::Step step) const { return suspect_from_ && step >= *suspect_from_; }
  void NoteAttempt(const std::string& ended_by);
  void RestartStart();
  void EnterClean(const std::string& reason);
  void AfterClean();
  void EnterAdmit(const std::string& reason);
  Status MapReplicas();
  void AfterAdmit();
  void CheckSources(bool from_snapshot) const;
  void EnterRepair();
  // What the ranks are brought to in REPAIR comes from a checkpoint.
  bool Reloads() const;
  void OnPhaseDone(Rank rank, const PhaseDone& done);
  void LimitTheLast();
  void OnPhaseFailed(Rank rank, const PhaseDone& done);
  void AfterPhase();
  void AfterVerify();
  std::vector<Copy> Copies() const;
  DigestVerdict Verdict() const;
  // Where comparing was asked for, what all replicas agreed on is kept.
  void Agreed();
  void OnMismatch(const DigestVerdict& verdict);
  Status TakeLoaded();
  void EnterRunning();
  void OnResumed(Rank rank);
  void AwaitResumed();
  void CloseIncident();

  // Takeover and consent (controller_takeover.cc).
  void BeginTakeover();
  void TakeStanding(Member& member, const Header& header, const JoinRequest& join);
  void OnFound(const ProcessFound& found);
  void MaybeTakenOver();
  void TakenOver();
  void ClaimForLost(std::map<Rank, std::map<int, GroupClaim>>* claims) const;
  void AskWitnessWhereItDecides();
  void CheckWord();
  void AwaitMajority();
  void ReconsiderMajority();

  // Held memory (controller_adopt.cc).
  void OnHeld(const StateHeld& told);
  void DoubtHeld(Rank rank);
  bool Adopts(Rank rank) const;
  void AddHeld(std::vector<LockReport>* reports) const;
  TimePoint AwayUntil() const;
  bool AwaitExits();
  void MaybeExitsKnown();

  // The dying gasp, before anything is written (controller_rescue.cc).
  void EnterDump();
  void BeginRescue(const IncidentSnapshot& snapshot);
  void MaybeRescued();
  void OnRescued(Rank rank, const PhaseDone& done);
  std::vector<Rank> LateRescues() const;
  void CompareGasp();
  void WriteGasp();
  bool IsRescued(Rank rank) const;

  // Hangs and crash loops (controller_hang.cc).
  void WatchForHangs();
  void CheckHangs();
  void OnPlace(Rank rank, const Progress& place);
  void BlameHang(const Hang& hang);
  bool BlameWhoLeft(const Hang& hang);
  void NoteCrash(Rank rank, const std::string& cause);
  void CountFailures();
  bool IsRetriedInVain();

  // In-memory snapshots (controller_snapshot.cc).
  void ArmSnapshot();
  void OrderSnapshot(Rank rank);
  void OnSnapshotReport(Rank rank, const SnapshotReport& report);
  // The snapshot that a reload goes back to cannot be used as it is.
  void OnSnapshotUnreadable(Rank rank, const std::string& why);

  // What an operator asks for beside saves (controller_operator.cc).
  void OnPauseAsked();
  void OnContinueAsked();
  void OnReplaceAsked(Rank rank);
  void BeginRequestedPause();
  bool StaysPaused();
  void SaveWhilePaused();

  // Saves, pauses, the end (controller_save.cc).
  void RequestSave(bool then_end);
  // Whatever waits for the run to be going: a save, a stop, a pause.
  void BeginRequestedSave();
  void ArmPause();
  bool SavesAt(kintsugi::Step step) const;
  bool VerifiesAt(kintsugi::Step step) const;
  // All ranks park there by themselves.
  bool IsPeriodic(kintsugi::Step step) const { return SavesAt(step) || VerifiesAt(step); }
  void LeaveSavePoints();
  void LeaveSavePoint(Rank rank);
  void OnPauseAck(Rank rank, const PauseAck& ack);
  void OnSavePoint(Rank rank, kintsugi::Step step);
  void MaybeSave();
  void StartWriting(kintsugi::Step step, const IncidentSnapshot& snapshot);
  void OnSaveDone(Rank rank, const PhaseDone& done);
  void OnLastSaveFailed(Rank rank, const std::string& text);
  void OnPublished(kintsugi::Step step, const std::string& directory);
  void FinishSave();
  void SettleSave();
  void CancelSave();
  void MaybeFinish();
  void AskForDigests(SaveState state);
  void OnDigests(Rank rank, const PhaseDone& done);
  void Finish();
  void End(int exit_code, const std::string& text);
  kintsugi::Step CommittedStep(int exit_code) const;
  void EndWithoutSave(const std::string& why);
  void OnGateEntered(Rank rank, kintsugi::Step step);

  // Helpers.
  void SetPhase(Phase to, const std::string& reason);
  void SetSave(SaveState to);
  void SendTo(Rank rank, ControllerMessage message);
  void Kill(Rank rank, const std::string& reason);
  std::vector<Rank> LiveRanks() const;
  // Sends make(rank) to each and waits for all of them: for the limit that the handlers have, and then for their
  // answer.
  template <typename Make>
  void Order(const std::vector<Rank>& ranks, Duration limit, Make make) {
    deadline_ = now_ + limit + policy_.AnswerSlack();
    out_.reserve(out_.size() + ranks.size());
    for (Rank rank : ranks) Ask(rank, make(rank));
  }
  // One rank's part of that; the deadline is the caller's.
  void Ask(Rank rank, ControllerMessage message);
  bool NobodyWaits() const { return members_.waiting() == 0; }
  void Heard(Rank rank, Phase phase);
  void Drop(Rank rank, const std::string& why);
  std::string FirstRegistryError() const;
  void OnMisfit(const std::string& error);
  Duration LimitOf(Phase phase) const;

  const Policy policy_;
  const Term term_;
  TimePoint now_;
  std::vector<ControllerAction> out_;

  Phase phase_ = Phase::kAdmit;
  TimePoint phase_began_;
  TimePoint deadline_ = TimePoint::Max();
  Generation generation_;
  Roster members_;
  FailureDetector detector_;
  HangDetector hangs_;
  SlowRanks slow_;
  PhaseTimes phase_times_;
  Repeats repeats_;
  SpareCounts spares_;
  ReplicaMap replicas_;
  bool replicas_known_ = false;
  Unregistered unregistered_;
  bool registries_changed_ = true;  // somebody registered something else than what replicas_ was made of
  bool ever_ran_ = false;
  uint64_t dropped_ = 0;
  std::string told_warning_;  // of a registration, the newest

  bool taking_over_ = false;     // listening: nothing is ordered yet
  bool awaiting_exits_ = false;  // with LOCK or STOP: what the dead left, or the away hold, may be all there is
  Majority majority_;

  // The incident under way, where there is one.
  std::optional<IncidentRecord> incident_;
  uint64_t incident_count_ = 0;
  bool proven_ = false;    // a signal of this incident proves by itself that something broke
  bool healable_ = false;  // nothing but lost connections so far
  int attempt_ = 0;
  bool had_its_time_ = false;  // a handler ran out of its limit: who does not come out of STOP soon is the one
  std::optional<Rung> tried_;  // what this attempt has chosen
  std::optional<kintsugi::Step> suspect_from_;  // updates from this one on may hold damage that was found later
  std::map<Rank, kintsugi::Step> loaded_;       // resume by the trainer's loader: what each has loaded
  StepChoice choice_;
  kintsugi::Step resume_step_;  // where the run last went on from
  RungDecision decision_;
  std::vector<RepairMove> moves_;
  std::vector<Rank> replaced_;    // whose process is a new one, in this attempt: the first ones
  Checkpoint reload_;             // with the rung reload: fixed when it was chosen
  bool reload_snapshot_ = false;  // ... the in-memory snapshot of choice_.step instead
  Digests digests_;
  kintsugi::Step asked_step_;   // outside of REPAIR's: the step of which digests were asked for
  kintsugi::Step agreed_step_;  // with `verify_every`: the newest at which all replicas agreed, and on what
  Digests agreed_;
  TimePoint relock_at_ = TimePoint::Max();  // a phase failed by echo: lock again unless the cause shows before
  bool ran_out_ = false;                    // with relock_at_: a handler's limit ran out

  SnapshotRounds snapshots_;

  // Saving.
  SaveState save_ = SaveState::kNone;
  TimePoint save_deadline_ = TimePoint::Max();  // its own: a save outlives CONFIRM
  bool save_failed_ = false;                    // this one; it ends when nobody writes any more
  SaveSettled save_failure_;                    // with save_failed_: the last one's words
  int last_save_failures_ = 0;
  SaveRequest save_request_;
  bool end_after_save_ = false;
  bool stop_requested_ = false;
  TimePoint stop_deadline_ = TimePoint::Max();
  std::vector<Rank> writers_;
  std::vector<Rank> rescued_;  // with DUMP: lost ranks whose memory was held by launchers alone
  PauseRounds pause_;
  bool gathers_to_save_ = false;  // with ARMING and GATHERING: not for a pause alone
  bool pause_asked_ = false;      // outlives incidents: the run pauses again after one
  kintsugi::Step paused_step_;    // with PAUSED
  kintsugi::Step save_step_;
  bool save_after_verify_ = false;
  kintsugi::Step
      verified_step_;  // since the last incident, the newest at which all replicas agreed outside an incident
  std::optional<uint64_t> final_digest_;
  RunEnded ended_;  // with ENDED
  ControlGate gate_;
  CheckpointList checkpoints_;
};

}  // namespace kintsugi::core
