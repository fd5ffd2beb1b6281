#include "runtime/core/controller_core.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"

namespace kintsugi::core {
namespace {

// What a rank says of itself, whatever it has heard so far; everything else answers an order of one generation.
bool CountsInAnyGeneration(const AgentMessage& message) {
  return std::holds_alternative<Beat>(message) || std::holds_alternative<Ready>(message) ||
         std::holds_alternative<FaultReport>(message) || std::holds_alternative<Inexact>(message) ||
         std::holds_alternative<RankMarks>(message);
}

}  // namespace

ControllerCore::ControllerCore(Policy policy, Term term)
    : parts_(std::move(policy), term), halt_(parts_), takeover_(parts_), attendance_(parts_, halt_, takeover_) {
  parts_.faults.SetNext(halt_);
  const Policy& told = parts_.board.policy;
  if (!told.resume_directory.empty() && !told.resume_by_trainer)
    parts_.checkpoints.Begin({{told.resume_step, told.resume_directory}});
}

std::vector<ControllerAction> ControllerCore::Start(TimePoint now) {
  KINTSUGI_CHECK(parts_.board.generation() == Generation() && parts_.board.silent(), "a run is started twice");
  parts_.board.SetNow(now);
  if (parts_.board.policy.takes_over) {
    takeover_.Begin();
    return parts_.board.TakeActions();
  }
  parts_.board.BeginIn(Phase::kAdmit);
  parts_.board.RaiseGeneration(Generation(1));
  parts_.board.SetDeadline(now + parts_.board.policy.join_timeout);
  for (Rank rank : parts_.board.members.ranks())
    if (parts_.board.policy.can_spawn) parts_.processes.StartNext(rank);
  return parts_.board.TakeActions();
}

std::vector<ControllerAction> ControllerCore::Step(const ControllerEvent& event, TimePoint now) {
  parts_.board.SetNow(now);
  if (phase() == Phase::kEnded && !std::holds_alternative<FromAgent>(event)) return {};
  halt_.CheckWord();
  if (phase() == Phase::kEnded && !parts_.board.silent()) return parts_.board.TakeActions();
  const auto reconsider = [this] { halt_.CheckWord(), halt_.ReconsiderMajority(); };
  std::visit(Overloaded{
                 [this](const FromAgent& e) { OnMessage(e.header, e.message); },
                 [this](const ConnectionClosed& e) { attendance_.OnClosed(e); },
                 [this](const ProcessExited& e) {
                   // What others did then is asked before they are stopped.
                   if (parts_.board.members.InRun(e.rank) && parts_.board.At(e.rank).incarnation == e.incarnation)
                     parts_.hangs.OnBroken(e.rank);
                   attendance_.OnExited(e);
                 },
                 [this](const OperatorSave&) { parts_.saves.Request(false); },
                 [this](const OperatorStop&) { parts_.saves.Request(true); },
                 [this](const OperatorPause&) { parts_.saves.AskForPause(); },
                 [this](const OperatorContinue&) { parts_.saves.AskToContinue(); },
                 [this](const OperatorReplace& e) { parts_.saves.AskToReplace(e.rank); },
                 [this](const OperatorDrain& e) { parts_.saves.AskToDrain(e.first, e.ranks); },
                 [this](const OperatorScale& e) { parts_.saves.AskToScale(e.ranks); },
                 [this](const OperatorInject& e) {
                   if (parts_.board.members.Has(e.rank)) parts_.board.SendTo(e.rank, InjectOrder{e.injection});
                 },
                 [this](const ProcessFound& e) { takeover_.OnFound(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SparesWaiting& e) { parts_.processes.TellSpares(e); },
                 [this](const SpareNodes& e) { parts_.roads.TellSpareNodes(e.here); },
                 [this](const StateHeld& e) { parts_.processes.TellHeld(e); },
                 [&](const TieRuleTaken& e) { parts_.board.majority.TakeRule(e.rule), reconsider(); },
                 [this](const RanksMoved& e) { attendance_.OnMoved(e), parts_.saves.OnMoved(e.first); },
                 [this](const LauncherNew& e) { attendance_.OnLauncherNew(e); },
                 [this](const NodeAbsent& e) { attendance_.OnAbsent(e); },
                 [this](const PlacesAway& e) { parts_.scaling.TellAway(e.ranks); },
                 [&](const WitnessWord& e) { parts_.board.majority.TakeWord(e.until), reconsider(); },
             },
             event);
  return parts_.board.TakeActions();
}

// ---- messages ----------------------------------------------------------------------------------------------------

void ControllerCore::OnMessage(const Header& header, const AgentMessage& message) {
  const Rank rank = header.rank;
  if (!parts_.board.members.Has(rank)) return parts_.board.Drop(rank, "the rank is outside the world");
  if (const auto* join = std::get_if<JoinRequest>(&message)) return attendance_.OnJoin(header, *join);
  Member& member = parts_.board.At(rank);
  // A checkpoint that became visible stays so, whatever became of the rank that says so.
  if (const auto* published = std::get_if<Published>(&message);
      published && header.term == term() && phase() != Phase::kEnded)
    return parts_.saves.OnPublished(published->step, published->directory);
  // What a lost process had registered, by the launcher that holds its memory.
  if (const auto* ready = std::get_if<Ready>(&message);
      ready && policy().takes_over && !member.registered && header.incarnation != member.incarnation)
    return parts_.board.registered.Take(member, *ready);
  if (header.incarnation != member.incarnation || member.life == Life::kDead)
    return parts_.board.Drop(rank, "incarnation " + header.incarnation.ToString() + " is not the living one");
  if (header.term != term()) return parts_.board.Drop(rank, "the message is of another term");
  if (phase() == Phase::kEnded) return;
  const bool current = header.generation == generation();
  if (!current && !CountsInAnyGeneration(message))
    return parts_.board.Drop(rank, "generation " + header.generation.ToString() + " is not " + generation().ToString());
  if (parts_.scaling.IsComing(rank)) return OnNewcomer(rank, message);
  OnFitting(header, message, current);
}

// The run does not hear of it yet: where it has a fault, it does not come.
void ControllerCore::OnNewcomer(Rank rank, const AgentMessage& message) {
  if (const auto* ready = std::get_if<Ready>(&message)) return attendance_.OnReady(rank, *ready);
  if (const auto* beat = std::get_if<Beat>(&message)) return parts_.processes.SeeBeat(rank, beat->count);
  if (const auto* report = std::get_if<FaultReport>(&message)) return parts_.scaling.OnLost(rank, report->text);
}

void ControllerCore::OnFitting(const Header& header, const AgentMessage& message, bool current) {
  const Rank rank = header.rank;
  std::visit(Overloaded{
                 [](const JoinRequest&) {},  // taken by OnMessage, like a checkpoint that became visible
                 [](const Published&) {},
                 [&](const Ready& m) { attendance_.OnReady(rank, m); },
                 [&](const Beat& m) {
                   if (current)
                     parts_.board.At(rank).begun = kintsugi::Step(m.place.step), parts_.hangs.OnPlace(rank, m.place);
                   parts_.processes.SeeBeat(rank, m.count);
                 },
                 [&](const FaultReport& m) {
                   // An exception may be of a message that was another one's.
                   if ((m.kind == FaultKind::kCommError || m.kind == FaultKind::kException) && current)
                     parts_.hangs.OnBroken();
                   parts_.faults.OnReport(rank, m, current);
                 },
                 [&](const LockReply& m) { halt_.OnLockReply(rank, m); },
                 [&](const Parked& m) { halt_.OnParked(rank, m); },
                 [&](const PhaseDone& m) { OnPhaseDone(rank, m); },
                 [&](const Resumed&) { parts_.recovery.OnResumed(rank); },
                 [&](const Finished& m) { OnFinished(rank, m); },
                 [&](const GateEntered& m) { OnGateEntered(rank, m.step); },
                 [&](const SavePoint& m) {
                   parts_.board.At(rank).objects_ahead = m.objects_ahead;
                   parts_.saves.OnParked(rank, m.step);
                 },
                 [&](const PauseAck& m) { parts_.saves.OnPauseAck(rank, m); },
                 [&](const SnapshotReport& m) { parts_.snapshots.OnReport(rank, m); },
                 [&](const RankMarks& m) { parts_.hangs.OnMarks(rank, m); },
                 [&](const Inexact& m) { parts_.inexact.Note(rank, m.text); },
                 [](const StoreSet&) {},  // the driver's StoreTable answers
                 [](const StoreGet&) {},
             },
             message);
}

void ControllerCore::OnPhaseDone(Rank rank, const PhaseDone& done) {
  switch (parts_.board.save()) {
    case SaveState::kNone:
    case SaveState::kArming:
    case SaveState::kGathering:
    case SaveState::kPaused:
      return parts_.recovery.OnDone(rank, done);
    case SaveState::kVerifying:
    case SaveState::kFinalVerify:
      return parts_.saves.OnDigests(rank, done);
    case SaveState::kRescuing:
      return parts_.rescue.OnAdopted(rank, done);
    case SaveState::kComparing:
      return parts_.rescue.OnDigests(rank, done);
    case SaveState::kWriting:
    case SaveState::kRenaming:
      return parts_.saves.OnWritten(rank, done);
  }
}

void ControllerCore::OnFinished(Rank rank, const Finished& finished) {
  parts_.board.At(rank).finished = finished.step;
  parts_.board.At(rank).finished_changed = finished.changed;
  parts_.board.At(rank).objects_ahead = finished.objects_ahead;
  parts_.hangs.OnIdle(rank);
  parts_.recovery.OnResumed(rank);  // a loop that had nothing left to do says no more than this
  parts_.saves.MaybeFinish();
}

void ControllerCore::OnGateEntered(Rank rank, kintsugi::Step step) {
  if (!parts_.board.InTraining()) return;
  const ControlGate::Answer answer = parts_.gate.Enter(rank, step);
  if (answer == ControlGate::Answer::kOpenAlready) return parts_.board.SendTo(rank, GateOpen{step});
  if (answer != ControlGate::Answer::kOpens) return;
  const GateOpen open{*parts_.gate.newest_open()};
  for (Rank each : parts_.board.members.ranks()) parts_.board.SendTo(each, open);
}

// ---- time --------------------------------------------------------------------------------------------------------

void ControllerCore::OnTick() {
  if (std::vector<Rank> silent = parts_.processes.Silent(); !silent.empty()) {
    const std::string why =
        "no sign of life for " + std::to_string(static_cast<int>(ToMilliseconds(policy().silence))) + " ms";
    for (Rank rank : silent)
      if (parts_.scaling.IsComing(rank)) parts_.scaling.OnLost(rank, why);  // and with it all that were to come
    std::erase_if(silent, [this](Rank rank) { return !parts_.board.members.InRun(rank); });
    parts_.faults.GiveUp(silent, FaultKind::kSilence, parts_.board.now() - policy().silence, why);
  }
  if (phase() == Phase::kEnded) return;
  if (const std::vector<Rank> lost = parts_.processes.Lost(); !lost.empty())
    parts_.faults.GiveUp(lost, FaultKind::kConnectionLost, parts_.board.now() - policy().ConfirmWindow(),
                         "the control connection did not come back");
  parts_.hangs.Check();
  if (phase() == Phase::kEnded || parts_.saves.CheckGrace()) return;
  parts_.saves.CheckReplacements();
  parts_.scaling.Refill();
  if (parts_.board.now() >= parts_.recovery.retry_at()) return parts_.recovery.Retry();
  if (parts_.board.now() >= parts_.board.deadline()) return OnDeadline();
  if (parts_.board.now() >= parts_.board.save_deadline()) OnSaveDeadline();
}

void ControllerCore::OnDeadline() {
  parts_.board.SetDeadline(TimePoint::Max());
  if (taking_over()) return takeover_.Conclude();
  if (halt_.OnDeadline()) return;
  if (phase() == Phase::kConfirm) return parts_.faults.Lock("no further cause within the confirmation window");
  // Ranks that are still waited for did not keep the deadline. All are named before the first is given up: that begins
  // the next attempt, and in it everybody is waited for again.
  bool (*is_late)(const Member&) = [](const Member& m) -> bool { return m.waiting; };
  if (phase() == Phase::kAdmit) is_late = [](const Member& m) { return m.life != Life::kReady; };
  if (phase() == Phase::kRunning) is_late = [](const Member& m) { return !m.resumed; };
  std::vector<Rank> late = parts_.board.members.Where(is_late);
  if (phase() == Phase::kStop && !parts_.board.course.leaving)
    std::erase_if(late, [this](Rank rank) { return parts_.hangs.IsBusy(rank); });
  if (phase() == Phase::kAdmit && !parts_.board.course.ever_ran && !late.empty())
    return parts_.end.End(kExitStartup,
                          "rank " + late.front().ToString() + " was not ready within " +
                              std::to_string(static_cast<int>(ToMilliseconds(policy().join_timeout) / 1000)) +
                              " s: does the program call Agent::Join and Agent::Run? What loads or builds for longer "
                              "needs a longer --join-timeout");
  if (parts_.recovery.RanOut()) return;
  const bool hung = phase() == Phase::kStop && incident() && incident()->signal == FaultKind::kHang;
  parts_.faults.GiveUp(
      late, hung ? FaultKind::kHang : FaultKind::kStalled, parts_.board.now(),
      std::string(PhaseName(phase())) + " not finished within " +
          std::to_string(static_cast<int>(ToMilliseconds(parts_.board.now() - parts_.board.phase_began()))) + " ms");
}

void ControllerCore::OnSaveDeadline() {
  parts_.board.SetSaveDeadline(TimePoint::Max());
  if (parts_.board.save() == SaveState::kRescuing)
    return parts_.faults.GiveUp(parts_.rescue.Late(), FaultKind::kStalled, parts_.board.now(),
                                "it did not come to save what is held in time");
  if (Writes(parts_.board.save())) return parts_.saves.RanOut();
  parts_.faults.GiveUp(parts_.board.members.Where([](const Member& m) -> bool { return m.waiting; }),
                       FaultKind::kStalled, parts_.board.now(), "the save was not finished in time");
}

bool ControllerCore::WaitsAreBounded() const {
  if (phase() == Phase::kEnded ||
      (phase() == Phase::kRunning && parts_.board.NobodyWaits() && parts_.board.members.unresumed() == 0))
    return true;
  return parts_.board.deadline() != TimePoint::Max() || parts_.board.save_deadline() != TimePoint::Max() ||
         parts_.recovery.retry_at() != TimePoint::Max();
}

}  // namespace kintsugi::core
