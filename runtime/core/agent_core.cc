#include "runtime/core/agent_core.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"

namespace kintsugi::core {
namespace {

// So many faults are said again after a lost connection; the first ones tell the story.
constexpr size_t kFaultsKept = 64;

}  // namespace

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
                   gate_ = e.step;
                   at_gate_ = true;
                   Send(GateEntered{e.step});
                 },
                 [this](const PauseStored& e) {
                   if (std::exchange(pause_due_, false)) Send(PauseAck{e.begun});
                 },
                 [this](const Connected& e) {
                   term_ = std::max(term_, e.term);
                   OnConnected();
                 },
                 [this](const SnapshotCopied& e) { OnSnapshotCopied(e); },
                 [this](const StopReturned&) {
                   stopping_ = false;
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
  const bool locks = Advance(header.generation);
  std::visit(Overloaded{
                 [](const JoinReply&) {},  // its driver's: it says what became of the connection
                 [](const StoreReply&) {},
                 [&](const LockOrder&) { OnLock(locks); },
                 [this](const StopOrder& m) { OnStop(m); },
                 [this](const PhaseOrder& m) { OnPhaseOrder(m); },
                 [this](const ResumeOrder& m) {
                   published_.reset();
                   OnResume(m);
                 },
                 [this](const ContinueOrder&) {
                   published_.reset();
                   OnContinue();
                 },
                 [this](const PauseAt& m) {
                   pause_due_ = true;
                   pause_ = m.step;
                   out_.push_back(StorePause{m.step});
                 },
                 [this](const GateOpen& m) {
                   // The answer to a gate that was said twice comes twice: the second is none to the gate of a later
                   // step.
                   if (locked_ || gate_ != m.step || !std::exchange(at_gate_, false)) return;
                   out_.push_back(OpenGate{m.step});
                 },
                 [this](const InjectOrder& m) { out_.push_back(ArmInjection{m.injection}); },
                 [this](const EndOrder& m) {
                   ended_ = true;
                   if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
                   out_.push_back(EndTrainer{m.exit_code, m.text});
                 },
                 [this](const SnapshotOrder& m) { OnSnapshotOrder(m); },
             },
             event.message);
}

// Whatever was under way belongs to the old generation. A generation begins with LOCK; should that order have been lost,
// its first other order locks the gate just as well.
bool AgentCore::Advance(Generation generation) {
  if (generation <= generation_) return false;
  generation_ = generation;
  stop_.reset();
  order_.reset();
  done_.reset();
  gate_.reset();
  at_gate_ = false;
  snapshot_step_.reset();
  snapshot_reports_.clear();
  resumed_ = false;
  std::erase_if(faults_, [](const FaultReport& fault) {
    return fault.kind != FaultKind::kMemoryLow && fault.kind != FaultKind::kMemoryHigh;
  });
  // An incident ends all pauses: ranks that stored one and ranks that did not would park at different steps.
  pause_due_ = false;
  ClearPause();
  if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
  if (locked_) return false;
  locked_ = true;
  out_.push_back(LockGate{});
  return true;
}

void AgentCore::ClearPause() {
  if (pause_.value() == 0) return;
  pause_ = kintsugi::Step();
  out_.push_back(StorePause{pause_});
}

void AgentCore::OnLock(bool under_way) {
  stop_.reset();
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
  stop_ = order;
  stopping_ = true;
  out_.push_back(Interrupt{order});
}

void AgentCore::ReportParked() {
  KINTSUGI_CHECK(trainer_ == Trainer::kParked, "the trainer's thread is told of as parked, and is not");
  // An update that was not begun is abandoned: at_gate(k) is k - 1 once its thread is parked.
  if (word_.state == GateState::kAtGate) word_ = {word_.locked, GateState::kCommitted, word_.step.Previous()};
  if (!stop_ || stopping_) return;
  stop_.reset();
  Send(Parked{word_.state, word_.step, offer_valid_ && word_.state == GateState::kCommitted});
}

void AgentCore::OnPhaseOrder(const PhaseOrder& order) {
  // Given again because the connection was lost: what is done is told again, what is under way goes on.
  if (done_ && done_->first.phase == order.phase && done_->first.step == order.step) return Send(done_->second);
  if (trainer_ == Trainer::kInHandler && running_.phase == order.phase && running_.step == order.step &&
      running_generation_ == generation_)
    return;
  order_ = order;
  if (trainer_ == Trainer::kParked) StartHandler();
}

void AgentCore::StartHandler() {
  if (!order_) return;
  KINTSUGI_CHECK(trainer_ == Trainer::kParked, std::string(PhaseName(order_->phase)) + " begins beside other work");
  const PhaseOrder order = *std::exchange(order_, std::nullopt);
  if (order.phase == Phase::kRepair) {
    const bool receives = std::any_of(order.moves.begin(), order.moves.end(),
                                      [&](const RepairMove& move) { return move.destination == rank_; });
    if (receives || order.rung == Rung::kReload) offer_valid_ = false;
  }
  // What is damaged from here on the digests do not prove.
  if (order.phase == Phase::kVerify) verified_faults_ = faults_.size();
  if (order.phase == Phase::kRollback) {
    faults_.erase(faults_.begin(),
                  faults_.begin() + static_cast<ptrdiff_t>(std::min(verified_faults_, faults_.size())));
    offer_valid_ = std::none_of(faults_.begin(), faults_.end(),
                                [](const FaultReport& fault) { return fault.kind == FaultKind::kMemoryHigh; });
    holds_state_ = true;
    word_ = {true, GateState::kCommitted, order.step};
    out_.push_back(SetCommitted{order.step});
  }
  trainer_ = Trainer::kInHandler;
  running_ = {order.phase, order.step};
  running_generation_ = generation_;
  out_.push_back(RunOnTrainer{generation_, order});
}

void AgentCore::OnResume(const ResumeOrder& order) {
  if (!locked_ && resumed_) return Send(Resumed{});  // asked again: the answer was lost
  if (trainer_ != Trainer::kParked || !locked_) return;
  locked_ = false;
  released_ = true;
  stop_.reset();
  done_.reset();
  finished_.reset();
  at_save_point_ = false;
  trainer_ = Trainer::kInLoop;
  out_.push_back(ReleaseTrainer{generation_, order.step});
}

void AgentCore::OnContinue() {
  if (locked_ || trainer_ != Trainer::kParked || !at_save_point_) return;
  at_save_point_ = false;
  done_.reset();
  if (pause_ <= word_.step) ClearPause();
  trainer_ = Trainer::kInLoop;
  out_.push_back(ContinueTrainer{});
}

void AgentCore::OnSavePoint(const TrainerAtSavePoint& event) {
  // Parked as far as orders go: a save runs on the trainer's thread, and so does what follows a LOCK.
  trainer_ = Trainer::kParked;
  at_save_point_ = true;
  word_ = {locked_, GateState::kCommitted, event.step};
  if (!locked_) Send(SavePoint{event.step});
  ReportParked();
  StartHandler();
}

void AgentCore::OnParked(const TrainerParked& event) {
  trainer_ = Trainer::kParked;
  word_ = event.word;
  if (event.outcome == TrainerParked::Outcome::kReady && ready_) {
    Send(*ready_);
  } else if (event.outcome == TrainerParked::Outcome::kFinished && !locked_) {
    finished_ = word_.step;
    Send(Finished{word_.step});
  } else if (event.outcome == TrainerParked::Outcome::kFault) {
    // Under a lock an exception is the echo of the stop; damaged memory is news at any time.
    const bool memory = event.fault.kind == FaultKind::kMemoryLow || event.fault.kind == FaultKind::kMemoryHigh;
    if (!locked_ || memory) Report(event.fault);
  }
  ReportParked();
  StartHandler();
}

void AgentCore::OnSnapshotOrder(const SnapshotOrder& order) {
  // Given again because the connection was lost: what is known is told, what is under way goes on.
  if (locked_) return;
  if (snapshot_step_ == order.step) {
    for (const SnapshotReport& report : snapshot_reports_) Send(report);
    return;
  }
  snapshot_step_ = order.step;
  snapshot_reports_.clear();
  out_.push_back(ArmSnapshot{generation_, order});
}

void AgentCore::OnSnapshotCopied(const SnapshotCopied& event) {
  if (event.generation != generation_ || locked_ || snapshot_step_ != event.report.step) return;
  snapshot_reports_.push_back(event.report);
  Send(event.report);
}

void AgentCore::Report(const FaultReport& fault) {
  // Memory that is not to be trusted is no offer; where only named tensors are damaged, the controller keeps account.
  if (fault.kind == FaultKind::kMemoryHigh) offer_valid_ = false;
  if (faults_.size() < kFaultsKept) faults_.push_back(fault);
  Send(fault);
}

void AgentCore::OnHandlerDone(const HandlerDone& event) {
  KINTSUGI_CHECK(
      trainer_ == Trainer::kInHandler && running_generation_ == event.generation && running_.phase == event.done.phase,
      std::string(PhaseName(event.done.phase)) + " of generation " + event.generation.ToString() +
          " is done, and was not under way");
  trainer_ = Trainer::kParked;
  // It is there, whatever became of the order meanwhile; and it is told again until the run has gone on.
  if (event.published) {
    published_ = event.published;
    Send(*published_);
  }
  if (event.generation == generation_) {
    done_ = {running_, event.done};
    Send(event.done);
  }
  ReportParked();
  StartHandler();
}

Standing AgentCore::standing() const {
  if (!released_) return holds_state_ ? Standing::kHolds : Standing::kNew;
  return locked_ ? Standing::kLocked : Standing::kRunning;
}

// What this rank said by itself while the connection was down is lost; what it was asked for the controller asks again.
void AgentCore::OnConnected() {
  if (published_) Send(*published_);
  if (ready_) Send(*ready_);
  for (const FaultReport& fault : faults_) Send(fault);
  if (locked_) return;
  if (finished_) Send(Finished{*finished_});
  if (at_save_point_) Send(SavePoint{word_.step});
  // One that it has passed too: a controller that took over does not know that it opened, and others may not have heard.
  if (gate_) Send(GateEntered{*gate_});
  for (const SnapshotReport& report : snapshot_reports_) Send(report);
}

}  // namespace kintsugi::core
