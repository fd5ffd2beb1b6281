#include "runtime/core/agent_core.h"

#include <algorithm>
#include <utility>

namespace kintsugi::core {

std::vector<AgentAction> AgentCore::Step(const AgentEvent& event) {
  std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, FromController>) {
          OnMessage(e);
        } else if constexpr (std::is_same_v<E, GateLocked>) {
          if (trainer_ != Trainer::kParked) word_ = e.word;
          Send(LockReply{word_.state, word_.step, offer_valid_ && word_.state != GateState::kTorn});
        } else if constexpr (std::is_same_v<E, TrainerParked>) {
          OnParked(e);
        } else if constexpr (std::is_same_v<E, FaultSignal>) {
          Send(e.fault);
        } else if constexpr (std::is_same_v<E, HandlerDone>) {
          OnHandlerDone(e);
        } else if constexpr (std::is_same_v<E, TrainerResumed>) {
          if (!locked_) Send(Resumed{});
        } else if constexpr (std::is_same_v<E, TrainerAtSavePoint>) {
          // Parked as far as orders go: a save runs on the trainer's thread, and so does what follows a LOCK.
          trainer_ = Trainer::kParked;
          word_ = {locked_, GateState::kCommitted, e.step};
          if (locked_) return ReportParked();
          Send(SavePoint{e.step});
        } else if constexpr (std::is_same_v<E, TrainerAtGate>) {
          if (!locked_) Send(GateEntered{e.step});
        } else if constexpr (std::is_same_v<E, PauseStored>) {
          Send(PauseAck{e.begun});
        } else if constexpr (std::is_same_v<E, Connected>) {
          if (ready_) Send(*ready_);
        }
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
  if (std::holds_alternative<LockOrder>(event.message)) return OnLock(header.generation);
  // A generation begins with LOCK; a new process learns it from its first order.
  if (header.generation > generation_) {
    generation_ = header.generation;
    locked_ = true;
  }
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, StopOrder>) {
          OnStop(m);
        } else if constexpr (std::is_same_v<M, PhaseOrder>) {
          OnPhaseOrder(m);
        } else if constexpr (std::is_same_v<M, ResumeOrder>) {
          if (trainer_ != Trainer::kParked) return;
          locked_ = false;
          stop_.reset();
          trainer_ = Trainer::kInLoop;
          out_.push_back(ReleaseTrainer{generation_, m.step});
        } else if constexpr (std::is_same_v<M, ContinueOrder>) {
          if (locked_ || trainer_ != Trainer::kParked) return;
          trainer_ = Trainer::kInLoop;
          out_.push_back(ContinueTrainer{});
        } else if constexpr (std::is_same_v<M, PauseAt>) {
          out_.push_back(StorePause{m.step});
        } else if constexpr (std::is_same_v<M, GateOpen>) {
          if (!locked_) out_.push_back(OpenGate{m.step});
        } else if constexpr (std::is_same_v<M, StoreReply>) {
          out_.push_back(StoreAnswered{m});
        } else if constexpr (std::is_same_v<M, InjectOrder>) {
          out_.push_back(ArmInjection{m.injection});
        } else if constexpr (std::is_same_v<M, EndOrder>) {
          ended_ = true;
          if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
          out_.push_back(EndTrainer{m.exit_code, m.text});
        }
      },
      event.message);
}

void AgentCore::OnLock(Generation generation) {
  generation_ = generation;
  locked_ = true;
  stop_.reset();
  order_.reset();
  if (trainer_ == Trainer::kInHandler) out_.push_back(CancelHandler{});
  out_.push_back(LockGate{});
}

void AgentCore::OnStop(const StopOrder& order) {
  stop_ = order;
  out_.push_back(Interrupt{order});
  if (trainer_ == Trainer::kParked) ReportParked();
}

void AgentCore::ReportParked() {
  if (!stop_) return;
  stop_.reset();
  // An update that was not begun is abandoned: at_gate(k) is k - 1 once its thread is parked.
  if (word_.state == GateState::kAtGate) word_ = {word_.locked, GateState::kCommitted, word_.step.Previous()};
  Send(Parked{word_.state, word_.step, offer_valid_ && word_.state == GateState::kCommitted});
}

void AgentCore::OnPhaseOrder(const PhaseOrder& order) {
  order_ = order;
  if (trainer_ == Trainer::kParked) StartHandler();
}

void AgentCore::StartHandler() {
  if (!order_) return;
  const PhaseOrder order = *std::exchange(order_, std::nullopt);
  if (order.phase == Phase::kRepair) {
    const bool whole = std::any_of(order.moves.begin(), order.moves.end(), [&](const RepairMove& move) {
      return move.destination == rank_ && move.keys.empty();
    });
    if (whole || order.rung == Rung::kReload) offer_valid_ = false;
  }
  if (order.phase == Phase::kRollback) {
    offer_valid_ = true;
    word_ = {true, GateState::kCommitted, order.step};
    out_.push_back(SetCommitted{order.step});
  }
  trainer_ = Trainer::kInHandler;
  out_.push_back(RunOnTrainer{generation_, order});
}

void AgentCore::OnParked(const TrainerParked& event) {
  trainer_ = Trainer::kParked;
  word_ = event.word;
  if (event.outcome == TrainerParked::Outcome::kReady && ready_) {
    Send(*ready_);
  } else if (event.outcome == TrainerParked::Outcome::kFinished && !locked_) {
    Send(Finished{word_.step});
  } else if (event.outcome == TrainerParked::Outcome::kFault) {
    // Under a lock an exception is the echo of the stop; damaged memory is news at any time.
    const bool memory = event.fault.kind == FaultKind::kMemoryLow || event.fault.kind == FaultKind::kMemoryHigh;
    if (!locked_ || memory) Send(event.fault);
  }
  ReportParked();
  StartHandler();
}

void AgentCore::OnHandlerDone(const HandlerDone& event) {
  trainer_ = Trainer::kParked;
  if (event.generation == generation_) Send(event.done);
  ReportParked();
  StartHandler();
}

}  // namespace kintsugi::core
