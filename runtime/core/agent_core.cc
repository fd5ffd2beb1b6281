#include "runtime/core/agent_core.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/core/hang_detector.h"

namespace kintsugi::core {

std::vector<AgentAction> AgentCore::Step(const AgentEvent& event) {
  std::visit(Overloaded{
                 [this](const FromController& e) { OnMessage(e); },
                 [this](const GateLocked& e) { OnGateLocked(e); },
                 [this](const TrainerParked& e) { OnParked(e); },
                 [this](const FaultSignal& e) { Report(e.fault); },
                 [this](const HandlerDone& e) { OnHandlerDone(e); },
                 [this](const TrainerResumed&) {
                   if (locked_) return;
                   resumed_ = true;
                   Send(Resumed{});
                 },
                 [this](const TrainerAtSavePoint& e) { OnSavePoint(e); },
                 [this](const TrainerAtGate& e) {
                   if (locked_) return;
                   news_.EnterGate(e.step);
                   Send(GateEntered{e.step});
                 },
                 [this](const PauseStored& e) {
                   if (std::exchange(pause_.due, false)) Send(PauseAck{e.begun});
                 },
                 [this](const Connected& e) {
                   term_ = std::max(term_, e.term);
                   for (AgentMessage& message : news_.Again(locked_)) Send(std::move(message));
                 },
                 [this](const SnapshotCopied& e) { OnSnapshotCopied(e); },
                 [this](const InexactNoted& e) {
                   news_.AddInexact(e.text);
                   Send(Inexact{e.text});
                 },
                 [this](const MarksTaken& e) { Send(e.marks); },
                 [this](const StopReturned&) {
                   stop_.runs = false;
                   if (trainer_ == Trainer::kParked) ReportParked();
                 },
             },
             event);
  return std::exchange(out_, {});
}

void AgentCore::OnMessage(const FromController& event) {
  const Header& header = event.header;
  if (header.term < term_ || header.incarnation != incarnation_ || header.rank != rank_ || ended_ ||
      header.generation < generation_) {
    ++refused_;
    return;
  }
  term_ = header.term;
  // Answers of the store are no orders: they begin no generation.
  if (const auto* reply = std::get_if<StoreReply>(&event.message)) return out_.push_back(StoreAnswered{*reply});
  // Nor is a question.
  if (const auto* ask = std::get_if<AskMarks>(&event.message)) return out_.push_back(TellMarks{ask->round});
  const bool locks = Advance(header.generation);
  std::visit(
      Overloaded{
          [](const JoinReply&) {},  // its driver's: it says what became of the connection
          [](const StoreReply&) {}, [&](const LockOrder&) { OnLock(locks); }, [this](const StopOrder& m) { OnStop(m); },
          [this](const PhaseOrder& m) { OnPhaseOrder(m); },
          [this](const ResumeOrder& m) {
            news_.OnRunGoesOn();
            OnResume(m);
          },
          [this](const ContinueOrder&) {
            news_.OnRunGoesOn();
            OnContinue();
          },
          [this](const PauseAt& m) {
            pause_ = {m.step, true};
            out_.push_back(StorePause{m.step});
          },
          [this](const GateOpen& m) {
            if (!locked_ && news_.LeaveGate(m.step)) out_.push_back(OpenGate{m.step});
          },
          [this](const InjectOrder& m) { out_.push_back(ArmInjection{m.injection}); },
          [this](const EndOrder& m) {
            ended_ = true;
            if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
            out_.push_back(EndTrainer{m.exit_code, m.text});
          },
          [this](const SnapshotOrder& m) { OnSnapshotOrder(m); }, [](const AskMarks&) {},  // a question, answered above
      },
      event.message);
}

// Whatever was under way belongs to the old generation. A generation begins with LOCK; should that order have been lost,
// its first other order locks the gate just as well.
bool AgentCore::Advance(Generation generation) {
  if (generation <= generation_) return false;
  generation_ = generation;
  stop_.due.reset();
  handler_.due.reset();
  handler_.done.reset();
  resumed_ = false;
  cut_anew_ = false;
  news_.OnGeneration();
  // An incident ends all pauses: ranks that stored one and ranks that did not would park at different steps.
  pause_.due = false;
  ClearPause();
  if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
  if (locked_) return false;
  locked_ = true;
  out_.push_back(LockGate{});
  return true;
}

void AgentCore::ClearPause() {
  if (pause_.at.value() == 0) return;
  pause_.at = kintsugi::Step();
  out_.push_back(StorePause{pause_.at});
}

void AgentCore::OnLock(bool under_way) {
  stop_.due.reset();
  locked_ = true;
  lock_reply_due_ = true;
  if (!under_way) out_.push_back(LockGate{});
}

void AgentCore::OnGateLocked(const GateLocked& event) {
  // Once the thread is parked the core knows better: a thread that left its gate is not at it any more.
  if (trainer_ == Trainer::kInLoop) word_ = event.word;
  if (!std::exchange(lock_reply_due_, false)) return;
  Send(LockReply{word_.state, word_.step, offer_valid_ && word_.state != GateState::kTorn});
}

void AgentCore::OnStop(const StopOrder& order) {
  stop_ = {order, true};
  out_.push_back(Interrupt{order});
}

Duration AgentCore::ParkLimit(const Progress& place) const {
  KINTSUGI_CHECK(awaits_trainer(), "the trainer's thread is not waited for");
  const bool in_handler = trainer_ == Trainer::kInHandler;
  if (!in_handler && !IsInStep(place)) return stop_.due->park_limit;
  const Duration limit = in_handler ? handler_.running.limit : stop_.due->step_limit;
  return limit > Duration() ? std::min(limit, stop_.due->park_limit) : stop_.due->park_limit;
}

void AgentCore::ReportParked() {
  KINTSUGI_CHECK(trainer_ == Trainer::kParked, "the trainer's thread is told of as parked, and is not");
  // An update that was not begun is abandoned: at_gate(k) is k - 1 once its thread is parked.
  if (word_.state == GateState::kAtGate) word_ = {word_.locked, GateState::kCommitted, word_.step.Previous()};
  if (!stop_.due || stop_.runs) return;
  stop_.due.reset();
  Send(Parked{word_.state, word_.step, offer_valid_ && word_.state == GateState::kCommitted, objects_ahead_});
}

void AgentCore::OnPhaseOrder(const PhaseOrder& order) {
  // Given again because the connection was lost: what is done is told again, what is under way goes on.
  if (handler_.done && handler_.done->first.Is(order)) return Send(handler_.done->second);
  if (trainer_ == Trainer::kInHandler && handler_.running.Is(order) && handler_.running.generation == generation_)
    return;
  handler_.due = order;
  if (trainer_ == Trainer::kParked) StartHandler();
}

void AgentCore::StartHandler() {
  if (!handler_.due) return;
  KINTSUGI_CHECK(trainer_ == Trainer::kParked,
                 std::string(PhaseName(handler_.due->phase)) + " begins beside other work");
  const PhaseOrder order = *std::exchange(handler_.due, std::nullopt);
  next_crew_ = order.crew;
  if (order.phase == Phase::kRepair) {
    const bool receives = std::any_of(order.moves.begin(), order.moves.end(),
                                      [&](const RepairMove& move) { return move.destination == rank_; });
    if (receives || order.rung == Rung::kReload) offer_valid_ = false;
  }
  // What is damaged from here on the digests do not prove.
  if (order.phase == Phase::kVerify) news_.OnVerify();
  if (order.phase == Phase::kRollback) {
    // Who has nothing else of this step offers what it was given at once.
    cut_anew_ = order.relayout && offer_valid_ && !order.from_snapshot;
    if (!cut_anew_) TakeVerified();
    word_ = {true, GateState::kCommitted, order.step};
    out_.push_back(SetCommitted{order.step});
  }
  trainer_ = Trainer::kInHandler;
  handler_.running = {order.phase, order.step, generation_, order.limit};
  out_.push_back(RunOnTrainer{generation_, order, next_crew_});
}

void AgentCore::TakeVerified() {
  offer_valid_ = news_.OnRollback();
  holds_state_ = true;
}

void AgentCore::OnResume(const ResumeOrder& order) {
  if (!locked_ && resumed_) return Send(Resumed{});  // asked again: the answer was lost
  if (trainer_ != Trainer::kParked || !locked_) return;
  if (std::exchange(cut_anew_, false)) TakeVerified();
  locked_ = false;
  released_ = true;
  // Of a crew that was always whole there is nothing to say.
  const bool said = !crew_.empty() || !next_crew_.empty() || crew_since_.value() > 0;
  crew_ = next_crew_;
  crew_since_ = said ? generation_ : Generation();
  stop_.due.reset();
  handler_.done.reset();
  news_.OnReleased(order.snapshot);
  trainer_ = Trainer::kInLoop;
  out_.push_back(ReleaseTrainer{generation_, order.step, !news_.has_damage()});
}

void AgentCore::OnContinue() {
  if (locked_ || trainer_ != Trainer::kParked || !news_.LeaveSavePoint()) return;
  handler_.done.reset();
  if (pause_.at <= word_.step) ClearPause();
  trainer_ = Trainer::kInLoop;
  out_.push_back(ContinueTrainer{});
}

void AgentCore::OnSavePoint(const TrainerAtSavePoint& event) {
  // Parked as far as orders go: a save runs on the trainer's thread, and so does what follows a LOCK.
  trainer_ = Trainer::kParked;
  objects_ahead_ = event.objects_ahead;
  const SavePoint point{event.step, event.objects_ahead};
  news_.StandAtSavePoint(point);
  word_ = {locked_, GateState::kCommitted, event.step};
  if (!locked_) Send(point);
  ReportParked();
  StartHandler();
}

void AgentCore::OnParked(const TrainerParked& event) {
  trainer_ = Trainer::kParked;
  word_ = event.word;
  objects_ahead_ = event.objects_ahead;
  if (event.outcome == TrainerParked::Outcome::kReady && news_.ready()) {
    Send(*news_.ready());
  } else if (event.outcome == TrainerParked::Outcome::kFinished ||
             event.outcome == TrainerParked::Outcome::kFinishedChanged) {
    OnFinished(event);
  } else if (event.outcome == TrainerParked::Outcome::kFault) {
    // Under a lock an exception is the echo of the stop; damaged memory is news at any time.
    const bool memory = event.fault.kind == FaultKind::kMemoryLow || event.fault.kind == FaultKind::kMemoryHigh;
    if (!locked_ || memory) Report(event.fault);
  }
  ReportParked();
  StartHandler();
}

void AgentCore::OnFinished(const TrainerParked& event) {
  const bool changed = event.outcome == TrainerParked::Outcome::kFinishedChanged;
  // It has other bytes than those of its step: from here on it is nobody's source.
  if (changed) offer_valid_ = false;
  if (locked_) return;
  const Finished finished{word_.step, event.objects_ahead, changed};
  news_.Finish(finished);
  Send(finished);
}

void AgentCore::OnSnapshotOrder(const SnapshotOrder& order) {
  // Given again because the connection was lost: what is known is told, what is under way goes on.
  if (locked_) return;
  if (!news_.BeginSnapshot(order.step, order.keep)) {
    for (const SnapshotReport& report : news_.snapshots()) Send(report);
    return;
  }
  out_.push_back(ArmSnapshot{generation_, order});
}

void AgentCore::OnSnapshotCopied(const SnapshotCopied& event) {
  if (event.generation != generation_ || locked_ || !news_.IsSnapshot(event.report.step)) return;
  news_.AddSnapshot(event.report);
  Send(event.report);
}

void AgentCore::Report(const FaultReport& fault) {
  // Memory that is not to be trusted is no offer; where only named tensors are damaged, the controller keeps account.
  if (fault.kind == FaultKind::kMemoryHigh) offer_valid_ = false;
  news_.AddFault(fault);
  Send(fault);
}

void AgentCore::OnHandlerDone(const HandlerDone& event) {
  KINTSUGI_CHECK(trainer_ == Trainer::kInHandler && handler_.running.generation == event.generation &&
                     handler_.running.phase == event.done.phase,
                 std::string(PhaseName(event.done.phase)) + " of generation " + event.generation.ToString() +
                     " is done, and was not under way");
  trainer_ = Trainer::kParked;
  if (event.done.phase == Phase::kRollback && event.done.code == StatusCode::kOk) objects_ahead_ = false;
  // It is there, whatever became of the order meanwhile; and it is told again until the run has gone on.
  if (event.published) {
    news_.Publish(*event.published);
    Send(*event.published);
  }
  if (event.generation == generation_) {
    handler_.done = {handler_.running, event.done};
    Send(event.done);
  }
  ReportParked();
  StartHandler();
}

Standing AgentCore::standing() const {
  if (!released_) return holds_state_ ? Standing::kHolds : Standing::kNew;
  return locked_ ? Standing::kLocked : Standing::kRunning;
}

}  // namespace kintsugi::core
