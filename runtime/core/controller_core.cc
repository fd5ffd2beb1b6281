#include "runtime/core/controller_core.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"

namespace kintsugi::core {
namespace {

// What a rank says of itself, whatever it has heard so far; everything else answers an order of one generation.
bool CountsInAnyGeneration(const AgentMessage& message) {
  return std::holds_alternative<Beat>(message) || std::holds_alternative<Ready>(message) ||
         std::holds_alternative<FaultReport>(message);
}

}  // namespace

ControllerCore::ControllerCore(Policy policy, Term term)
    : board_(std::move(policy), term),
      repeats_(board_.policy.world_size),
      gate_(board_.policy.world_size),
      rounds_(board_.policy.snapshot_every, board_.policy.snapshot_auto),
      processes_(board_, gate_, rounds_, repeats_),
      end_(board_, checkpoints_, repeats_),
      faults_(board_, processes_, rounds_, repeats_, halt_),
      hangs_(board_, faults_, repeats_),
      snapshots_(board_, rounds_, hangs_, faults_),
      comparison_(board_, processes_, faults_, end_, rounds_),
      survey_(board_, checkpoints_, repeats_, comparison_),
      saves_(board_, end_, faults_, comparison_, survey_, hangs_, checkpoints_, repeats_),
      rescue_(board_, processes_, faults_, comparison_, survey_, saves_),
      recovery_(board_, processes_, faults_, end_, comparison_, rounds_, snapshots_, hangs_, saves_, checkpoints_),
      halt_(board_, processes_, end_, survey_, hangs_, rounds_, gate_, checkpoints_, repeats_, saves_, rescue_,
            recovery_),
      takeover_(board_, processes_, faults_, recovery_, saves_, checkpoints_),
      attendance_(board_, processes_, end_, faults_, rounds_, snapshots_, saves_, rescue_, recovery_, halt_, takeover_,
                  repeats_) {
  const Policy& told = board_.policy;
  if (!told.resume_directory.empty() && !told.resume_by_trainer)
    checkpoints_.Begin({{told.resume_step, told.resume_directory}});
}

std::vector<ControllerAction> ControllerCore::Start(TimePoint now) {
  KINTSUGI_CHECK(board_.generation() == Generation() && board_.silent(), "a run is started twice");
  board_.SetNow(now);
  if (board_.policy.takes_over) {
    takeover_.Begin();
    return board_.TakeActions();
  }
  board_.BeginIn(Phase::kAdmit);
  board_.RaiseGeneration(Generation(1));
  board_.SetDeadline(now + board_.policy.join_timeout);
  for (int r = 0; r < board_.policy.world_size; ++r)
    if (board_.policy.can_spawn) processes_.StartNext(Rank(r));
  return board_.TakeActions();
}

std::vector<ControllerAction> ControllerCore::Step(const ControllerEvent& event, TimePoint now) {
  board_.SetNow(now);
  if (phase() == Phase::kEnded && !std::holds_alternative<FromAgent>(event)) return {};
  halt_.CheckWord();
  if (phase() == Phase::kEnded && !board_.silent()) return board_.TakeActions();
  const auto reconsider = [this] { halt_.CheckWord(), halt_.ReconsiderMajority(); };
  std::visit(Overloaded{
                 [this](const FromAgent& e) { OnMessage(e.header, e.message); },
                 [this](const ConnectionClosed& e) { attendance_.OnClosed(e); },
                 [this](const ProcessExited& e) { attendance_.OnExited(e); },
                 [this](const OperatorSave&) { saves_.Request(false); },
                 [this](const OperatorStop&) { saves_.Request(true); },
                 [this](const OperatorPause&) { saves_.AskForPause(); },
                 [this](const OperatorContinue&) { saves_.AskToContinue(); },
                 [this](const OperatorReplace& e) { attendance_.OnReplaceAsked(e.rank); },
                 [this](const OperatorInject& e) {
                   if (board_.members.Has(e.rank)) board_.SendTo(e.rank, InjectOrder{e.injection});
                 },
                 [this](const ProcessFound& e) { takeover_.OnFound(e); },
                 [this](const Tick&) { OnTick(); },
                 [this](const SparesWaiting& e) { processes_.TellSpares(e); },
                 [this](const StateHeld& e) { processes_.TellHeld(e); },
                 [&](const TieRuleTaken& e) { board_.majority.TakeRule(e.rule), reconsider(); },
                 [this](const RanksMoved& e) { attendance_.OnMoved(e); },
                 [&](const WitnessWord& e) { board_.majority.TakeWord(e.until), reconsider(); },
             },
             event);
  return board_.TakeActions();
}

// ---- messages ----------------------------------------------------------------------------------------------------

void ControllerCore::OnMessage(const Header& header, const AgentMessage& message) {
  const Rank rank = header.rank;
  if (!board_.members.Has(rank)) return board_.Drop(rank, "the rank is outside the world");
  if (const auto* join = std::get_if<JoinRequest>(&message)) return attendance_.OnJoin(header, *join);
  Member& member = board_.At(rank);
  // A checkpoint that became visible stays so, whatever became of the rank that says so.
  if (const auto* published = std::get_if<Published>(&message);
      published && header.term == term() && phase() != Phase::kEnded)
    return saves_.OnPublished(published->step, published->directory);
  // What a lost process had registered, by the launcher that holds its memory.
  if (const auto* ready = std::get_if<Ready>(&message);
      ready && taking_over() && !member.registered && header.incarnation != member.incarnation)
    return board_.registered.Take(member, *ready);
  if (header.incarnation != member.incarnation || member.life == Life::kDead)
    return board_.Drop(rank, "incarnation " + header.incarnation.ToString() + " is not the living one");
  if (header.term != term()) return board_.Drop(rank, "the message is of another term");
  if (phase() == Phase::kEnded) return;
  const bool current = header.generation == generation();
  if (!current && !CountsInAnyGeneration(message))
    return board_.Drop(rank, "generation " + header.generation.ToString() + " is not " + generation().ToString());
  OnFitting(header, message, current);
}

void ControllerCore::OnFitting(const Header& header, const AgentMessage& message, bool current) {
  const Rank rank = header.rank;
  std::visit(Overloaded{
                 [](const JoinRequest&) {},  // taken by OnMessage, like a checkpoint that became visible
                 [](const Published&) {},
                 [&](const Ready& m) { attendance_.OnReady(rank, m); },
                 [&](const Beat& m) {
                   if (current) board_.At(rank).begun = kintsugi::Step(m.place.step), hangs_.OnPlace(rank, m.place);
                   processes_.SeeBeat(rank, m.count);
                 },
                 [&](const FaultReport& m) { faults_.OnReport(rank, m, current); },
                 [&](const LockReply& m) { halt_.OnLockReply(rank, m); },
                 [&](const Parked& m) { halt_.OnParked(rank, m); },
                 [&](const PhaseDone& m) { OnPhaseDone(rank, m); },
                 [&](const Resumed&) { recovery_.OnResumed(rank); },
                 [&](const Finished& m) { OnFinished(rank, m.step); },
                 [&](const GateEntered& m) { OnGateEntered(rank, m.step); },
                 [&](const SavePoint& m) { saves_.OnParked(rank, m.step); },
                 [&](const PauseAck& m) { saves_.OnPauseAck(rank, m); },
                 [&](const SnapshotReport& m) { snapshots_.OnReport(rank, m); },
                 [](const StoreSet&) {},  // the driver's StoreTable answers
                 [](const StoreGet&) {},
             },
             message);
}

void ControllerCore::OnPhaseDone(Rank rank, const PhaseDone& done) {
  switch (board_.save()) {
    case SaveState::kNone:
    case SaveState::kArming:
    case SaveState::kGathering:
    case SaveState::kPaused:
      return recovery_.OnDone(rank, done);
    case SaveState::kVerifying:
    case SaveState::kFinalVerify:
      return saves_.OnDigests(rank, done);
    case SaveState::kRescuing:
      return rescue_.OnAdopted(rank, done);
    case SaveState::kComparing:
      return rescue_.OnDigests(rank, done);
    case SaveState::kWriting:
    case SaveState::kRenaming:
      return saves_.OnWritten(rank, done);
  }
}

void ControllerCore::OnFinished(Rank rank, kintsugi::Step step) {
  board_.At(rank).finished = step;
  hangs_.OnIdle(rank);
  recovery_.OnResumed(rank);  // a loop that had nothing left to do says no more than this
  saves_.MaybeFinish();
}

void ControllerCore::OnGateEntered(Rank rank, kintsugi::Step step) {
  if (!board_.InTraining()) return;
  const ControlGate::Answer answer = gate_.Enter(rank, step);
  if (answer == ControlGate::Answer::kOpenAlready) return board_.SendTo(rank, GateOpen{step});
  if (answer != ControlGate::Answer::kOpens) return;
  const GateOpen open{*gate_.newest_open()};
  for (size_t r = 0; r < board_.members.size(); ++r) board_.SendTo(Rank(static_cast<int32_t>(r)), open);
}

// ---- time --------------------------------------------------------------------------------------------------------

void ControllerCore::OnTick() {
  faults_.GiveUp(processes_.Silent(), FaultKind::kSilence, board_.now() - policy().silence,
                 "no sign of life for " + std::to_string(static_cast<int>(ToMilliseconds(policy().silence))) + " ms");
  if (phase() == Phase::kEnded) return;
  faults_.GiveUp(processes_.Lost(), FaultKind::kConnectionLost, board_.now() - policy().ConfirmWindow(),
                 "the control connection did not come back");
  hangs_.Check();
  if (phase() == Phase::kEnded || saves_.CheckGrace()) return;
  if (board_.now() >= recovery_.retry_at()) return recovery_.Retry();
  if (board_.now() >= board_.deadline()) return OnDeadline();
  if (board_.now() >= board_.save_deadline()) OnSaveDeadline();
}

void ControllerCore::OnDeadline() {
  board_.SetDeadline(TimePoint::Max());
  if (taking_over()) return takeover_.Conclude();
  if (halt_.OnDeadline()) return;
  if (phase() == Phase::kConfirm) return faults_.Lock("no further cause within the confirmation window");
  // Whoever is still waited for did not keep the deadline. All are named before the first is given up: that begins the
  // next attempt, and in it everybody is waited for again.
  bool (*is_late)(const Member&) = [](const Member& m) -> bool { return m.waiting; };
  if (phase() == Phase::kAdmit) is_late = [](const Member& m) { return m.life != Life::kReady; };
  if (phase() == Phase::kRunning) is_late = [](const Member& m) { return !m.resumed; };
  const std::vector<Rank> late = board_.members.Where(is_late);
  if (phase() == Phase::kAdmit && !board_.course.ever_ran && !late.empty())
    return end_.End(kExitStartup, "rank " + late.front().ToString() + " was not ready within " +
                                      std::to_string(static_cast<int>(ToMilliseconds(policy().join_timeout) / 1000)) +
                                      " s: does the program call Agent::Join and Agent::Run?");
  if (recovery_.RanOut()) return;
  const bool hung = phase() == Phase::kStop && incident() && incident()->signal == FaultKind::kHang;
  faults_.GiveUp(late, hung ? FaultKind::kHang : FaultKind::kStalled, board_.now(),
                 std::string(PhaseName(phase())) + " not finished within " +
                     std::to_string(static_cast<int>(ToMilliseconds(board_.now() - board_.phase_began()))) + " ms");
}

void ControllerCore::OnSaveDeadline() {
  board_.SetSaveDeadline(TimePoint::Max());
  if (board_.save() == SaveState::kRescuing)
    return faults_.GiveUp(rescue_.Late(), FaultKind::kStalled, board_.now(),
                          "it did not come to save what is held in time");
  faults_.GiveUp(board_.members.Where([](const Member& m) -> bool { return m.waiting; }), FaultKind::kStalled,
                 board_.now(), "the save was not finished in time");
}

bool ControllerCore::WaitsAreBounded() const {
  if (phase() == Phase::kEnded ||
      (phase() == Phase::kRunning && board_.NobodyWaits() && board_.members.unresumed() == 0))
    return true;
  return board_.deadline() != TimePoint::Max() || board_.save_deadline() != TimePoint::Max() ||
         recovery_.retry_at() != TimePoint::Max();
}

}  // namespace kintsugi::core
