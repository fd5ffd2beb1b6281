// StopWatch: has the trainer's stop handler called on the stop caller's thread, and watches that it returns in time and
// that the trainer's thread then comes out of its step. What takes too long is told to the controller, which gives the
// process up.
//
// Threads: the agent's, but for Open, AwaitIdle and Close, which are the trainer's; the handler runs on the caller's own.
// Ownership: the caller, and its timer.
// Errors: none; a handler that fails is a line in the log.
// Invariants: after Close nothing of the trainer's is called. Nobody waits for a handler on the agent's thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/agent/activity_clock.h"
#include "runtime/agent/agent_thread.h"
#include "runtime/agent/inbox.h"
#include "runtime/agent/membership.h"
#include "runtime/agent/registration.h"
#include "runtime/agent/stop_caller.h"
#include "runtime/base/log.h"

namespace kintsugi {

class StopWatch {
 public:
  StopWatch(const Membership& self, const Registration& registered, const RankPage& page,
            const ActivityClock& activities, const Inbox& inbox, AgentThread& thread, std::shared_ptr<LogSink> log)
      : self_(self),
        registered_(registered),
        page_(page),
        activities_(activities),
        inbox_(inbox),
        thread_(thread),
        log_(std::move(log)),
        timer_(thread.io()) {}

  // The guard begins: from now on there is something to stop.
  void Open();
  // Returns when the handler does not run, and no call of it is due.
  void AwaitIdle();
  // Last of all: returns when the handler does not run and never will. The agent's thread still answers.
  void Close();

  void Stop(const core::StopOrder& order);
  // Once more, for what may have been entered since; as the newest order says.
  void StopAgain() { Call(order_.stop_limit); }
  // The run is over: no rank is to blame.
  void StopForGood();
  // The agent ends: no timer runs on.
  void EndTimer();

 private:
  struct Context {
    Generation generation;
    Duration limit{};
    std::vector<Rank> fault_ranks;
  };

  void Call(Duration limit);
  void CallHandler(CancelToken& cancel);
  void OnReturned(uint64_t request);
  void AwaitPark();
  Duration ParkLimit() const;
  void OnParkLate(Generation generation);
  // The trainer's thread is in what takes longer than a step, by its own word, and may be.
  bool IsBusy() const;
  void StartTimer(Duration limit, std::function<void()> late);
  void TellStalled(std::string text, Duration limit, Step step);

  const Membership& self_;
  const Registration& registered_;
  const RankPage& page_;
  const ActivityClock& activities_;
  const Inbox& inbox_;
  AgentThread& thread_;
  const std::shared_ptr<LogSink> log_;
  boost::asio::steady_timer timer_;  // the stop handler, then the trainer's thread on its way out of its step
  uint64_t timer_use_ = 0;
  uint64_t request_ = 0;  // the newest
  bool closed_ = false;
  bool was_busy_ = false;  // since the newest order
  TimePoint freed_at_;     // since when its thread is awaited
  core::StopOrder order_;
  Mutex mutex_;
  Context context_ KINTSUGI_GUARDED_BY(mutex_);  // of the newest request
  std::unique_ptr<StopCaller> caller_;           // made before the guard has begun, constant afterwards
};

}  // namespace kintsugi
