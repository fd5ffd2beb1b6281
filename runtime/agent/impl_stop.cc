// The stop handler: called on a thread of its own, watched by the agent's; and the end of everything that is the
// trainer's, before Run returns.
#include <boost/asio/post.hpp>
#include <future>

#include "runtime/agent/impl.h"

namespace kintsugi {

// Agent's thread.
void Agent::Impl::CallStop(Duration limit) {
  // Nothing runs that could be stopped: the trainer is still registering, or it has left.
  if (!running_ || trainer_left_ || !core_) return;
  if (service_) service_->Abort();
  {
    const MutexLock lock(mutex_);
    stop_context_ = {core_->generation(), limit, stop_order_.fault_ranks};
  }
  stop_request_ = stop_caller_->Request();
  OnStopTimer(
      [this, limit] {
        stop_caller_->Cancel();
        if (ended_) return;
        core::FaultReport fault;
        fault.kind = core::FaultKind::kStalled;
        fault.text = "the stop handler has not returned within " +
                     std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms";
        fault.since = SteadyClock::SteadyNow() - limit;
        Step_(core::FaultSignal{std::move(fault)});
      },
      limit);
}

// The stop caller's thread.
void Agent::Impl::CallStopHandler(CancelToken& cancel) {
  HandlerContext call;
  {
    const MutexLock lock(mutex_);
    call.generation = stop_context_.generation;
    call.deadline = SteadyClock::SteadyNow() + stop_context_.limit;
    call.fault_ranks = stop_context_.fault_ranks;
  }
  call.rank = options_.rank;
  call.world_size = options_.world_size;
  call.cancel = &cancel;
  const Status stopped = handlers_.Call(HandlerKind::kStop, call);
  if (!stopped.ok()) log_->Write(LogLevel::kError, LogLine("stop_failed", {{"why", stopped.message()}}));
}

// Agent's thread. An answer to an older request is none: another call has begun.
void Agent::Impl::OnStopReturned(uint64_t request) {
  if (request != stop_request_ || ended_) return;
  EndStopTimer();
  Step_(core::StopReturned{});
  if (core_->awaits_trainer()) AwaitPark();
}

// The stop handler has freed the trainer's thread: from now on it has so long to come out of its step.
void Agent::Impl::AwaitPark() {
  OnStopTimer(
      [this, generation = core_->generation(), limit = stop_order_.park_limit] {
        if (ended_ || !core_->awaits_trainer() || core_->generation() != generation) return;
        core::FaultReport fault;
        fault.kind = core::FaultKind::kStalled;
        fault.text = "its thread did not come out of its step within " +
                     std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms of the stop handler's return";
        fault.step = Step(UnpackProgress(words().progress.load()).step);
        fault.since = SteadyClock::SteadyNow() - limit;
        Step_(core::FaultSignal{std::move(fault)});
      },
      stop_order_.park_limit);
}

void Agent::Impl::OnStopTimer(std::function<void()> late, Duration limit) {
  const uint64_t use = ++stop_timer_use_;  // a handler that is queued already cannot be cancelled
  stop_timer_.expires_after(limit);
  stop_timer_.async_wait([this, use, late = std::move(late)](const boost::system::error_code& error) {
    if (!error && use == stop_timer_use_) late();
  });
}

void Agent::Impl::EndStopTimer() {
  ++stop_timer_use_;
  stop_timer_.cancel();
}

// Trainer's thread, last of all. The agent's thread runs until the agent is destroyed, so it answers.
void Agent::Impl::CloseToTrainer() {
  std::promise<void> closed;
  boost::asio::post(io_, [&] {
    trainer_left_ = true;
    EndStopTimer();
    closed.set_value();
  });
  closed.get_future().wait();
  stop_caller_->Close();
  if (snapshots_) snapshots_->Stop();  // a copy under way reads registered memory
}

}  // namespace kintsugi
