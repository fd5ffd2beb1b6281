#include "runtime/agent/stop_watch.h"

#include <future>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/hang_detector.h"

namespace kintsugi {
namespace {

constexpr Duration kBusyLook = std::chrono::milliseconds(100);

}  // namespace

void StopWatch::Open() {
  KINTSUGI_CHECK(!caller_ && !registered_.begun(), "the guard begins once, and has a stop caller then");
  caller_ = std::make_unique<StopCaller>(
      [this](CancelToken& cancel) { CallHandler(cancel); },
      [this](uint64_t request) { thread_.Call([this, request] { OnReturned(request); }); });
}

void StopWatch::AwaitIdle() {
  KINTSUGI_CHECK(caller_, "a task before the guard has begun");
  caller_->AwaitIdle();
}

void StopWatch::Close() {
  KINTSUGI_CHECK(caller_, "a guard that has not begun ends");
  std::promise<void> closed;
  thread_.Call([&] {
    closed_ = true;
    EndTimer();
    closed.set_value();
  });
  closed.get_future().wait();
  caller_->Close();
}

void StopWatch::Stop(const core::StopOrder& order) {
  order_ = order;
  was_busy_ = false;
  Call(order.stop_limit);
}

void StopWatch::StopForGood() {
  order_.fault_ranks.clear();
  Call(order_.stop_limit);
}

void StopWatch::Call(Duration limit) {
  // Nothing runs that could be stopped: the trainer is still registering, or it has left.
  if (!registered_.begun() || closed_ || !thread_.has_core()) return;
  KINTSUGI_CHECK(caller_, "the guard has begun, and there is a stop caller then");
  if (registered_.service()) registered_.service()->Abort();
  {
    const MutexLock lock(mutex_);
    context_ = {thread_.core().generation(), limit, order_.fault_ranks};
  }
  request_ = caller_->Request();
  StartTimer(limit, [this, limit] {
    caller_->Cancel();
    if (inbox_.ending()) return;
    TellStalled("the stop handler has not returned within " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms",
                limit, Step());
  });
}

// The stop caller's thread.
void StopWatch::CallHandler(CancelToken& cancel) {
  HandlerContext call;
  {
    const MutexLock lock(mutex_);
    call.generation = context_.generation;
    call.deadline = SteadyClock::SteadyNow() + context_.limit;
    call.fault_ranks = context_.fault_ranks;
  }
  call.rank = self_.options.rank;
  call.world_size = self_.options.world_size;
  call.cancel = &cancel;
  const Status stopped = registered_.handlers().Call(HandlerKind::kStop, call);
  if (!stopped.ok()) log_->Write(LogLevel::kError, LogLine("stop_failed", {{"why", stopped.message()}}));
}

// An answer to an older request is none: another call has begun.
void StopWatch::OnReturned(uint64_t request) {
  KINTSUGI_CHECK(request <= request_, "the stop handler answers what was not asked");
  if (request != request_ || inbox_.ending()) return;
  EndTimer();
  thread_.Step(core::StopReturned{});
  if (thread_.core().awaits_trainer()) AwaitPark();
}

// The stop handler has freed the trainer's thread: from now on it has so long to come out of its step.
void StopWatch::AwaitPark() {
  freed_at_ = SteadyClock::SteadyNow();
  StartTimer(ParkLimit(), [this, generation = thread_.core().generation()] { OnParkLate(generation); });
}

Duration StopWatch::ParkLimit() const {
  const SharedWords& words = page_.words();
  return thread_.core().ParkLimit(
      core::PlaceOf(words.progress.load(std::memory_order_relaxed),
                    core::GateWord::Unpack(words.gate_word.load(std::memory_order_relaxed))));
}

// What it is busy with it may finish; out of that it has the limit once more.
void StopWatch::OnParkLate(Generation generation) {
  const core::AgentCore& core = thread_.core();
  if (inbox_.ending() || !core.awaits_trainer() || core.generation() != generation) return;
  if (IsBusy()) {
    was_busy_ = true;
    return StartTimer(kBusyLook, [this, generation] { OnParkLate(generation); });
  }
  if (std::exchange(was_busy_, false)) return AwaitPark();
  // Meanwhile it may have come to where it has longer: behind the commit of the step that it was in.
  const Duration limit = ParkLimit();
  const Duration rest = freed_at_ + limit - SteadyClock::SteadyNow();
  if (rest > Duration()) return StartTimer(rest, [this, generation] { OnParkLate(generation); });
  TellStalled("its thread did not come out of its step within " +
                  std::to_string(static_cast<int64_t>(ToMilliseconds(limit))) + " ms of the stop handler's return",
              limit, page_.begun());
}

bool StopWatch::IsBusy() const {
  const Progress place = UnpackProgress(page_.words().progress.load(std::memory_order_relaxed));
  return order_.activity_limit > Duration() &&
         activities_.IsBusy(place.activity, order_.activity_limit, SteadyClock::SteadyNow());
}

void StopWatch::TellStalled(std::string text, Duration limit, Step step) {
  core::FaultReport fault;
  fault.kind = core::FaultKind::kStalled;
  fault.text = std::move(text);
  fault.step = step;
  fault.since = SteadyClock::SteadyNow() - limit;
  thread_.Step(core::FaultSignal{std::move(fault)});
}

void StopWatch::StartTimer(Duration limit, std::function<void()> late) {
  const uint64_t use = ++timer_use_;  // a handler that is queued already cannot be cancelled
  timer_.expires_after(limit);
  timer_.async_wait([this, use, late = std::move(late)](const boost::system::error_code& error) {
    if (!error && use == timer_use_) late();
  });
}

void StopWatch::EndTimer() {
  ++timer_use_;
  timer_.cancel();
}

}  // namespace kintsugi
