// AgentThread: the agent's own thread, and the core that it steps. What the core decides is carried out by an Actor.
//
// Threads: Call and Post are for any, and wait for nothing; Step, core and BeginCore are the thread's own. Start and
// Stop belong to the thread that joins and ends the agent.
// Ownership: the event loop, the thread, the core. A part that has timers or connections in the loop outlives the
// thread, not this object.
// Errors: what is thrown on the thread, a failed check too, goes to Actor::OnThrown, and the thread goes on.
// Invariants: the core is stepped by one thread, and by nobody before the rank has joined.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/core/agent_core.h"

namespace kintsugi {

class Actor {
 public:
  virtual void Act(const core::AgentAction& action) = 0;
  virtual void OnThrown(const std::string& what) = 0;

 protected:
  ~Actor() = default;
};

class AgentThread {
 public:
  AgentThread() : work_(boost::asio::make_work_guard(io_)) {}
  ~AgentThread();
  AgentThread(const AgentThread&) = delete;
  AgentThread& operator=(const AgentThread&) = delete;

  void Start(Actor& actor);
  bool started() const { return thread_.joinable(); }
  // The thread calls `last` and ends; what was posted and has not run is dropped.
  void Stop(const std::function<void()>& last);

  template <typename Function>
  void Call(Function function) {
    boost::asio::post(io_, std::move(function));
  }
  void Post(core::AgentEvent event);
  // What the Ready message says, now and whenever it is said again.
  void PostReady(core::Ready ready);

  // The rank has joined.
  void BeginCore(core::AgentCore core);
  void Step(const core::AgentEvent& event);
  bool has_core() const { return core_.has_value(); }
  const core::AgentCore& core() const {
    KINTSUGI_CHECK(core_, "a rank that has not joined stands nowhere");
    return *core_;
  }
  boost::asio::io_context& io() { return io_; }

 private:
  void Main();

  Actor* actor_ = nullptr;  // constant from Start on
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::optional<core::AgentCore> core_;
  std::thread::id id_;  // its own
  std::thread thread_;
};

}  // namespace kintsugi
