#include "runtime/agent/agent_thread.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>

#include "runtime/base/check.h"

namespace kintsugi {

AgentThread::~AgentThread() {
  if (started()) Stop([] {});
}

void AgentThread::Start(Actor& actor) {
  KINTSUGI_CHECK(!started(), "the agent's thread is started once");
  actor_ = &actor;
  // The host's signals stay with the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Main(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void AgentThread::Stop(const std::function<void()>& last) {
  KINTSUGI_CHECK(started(), "a thread that was not started was stopped");
  Call([&] {
    last();
    work_.reset();
    io_.stop();
  });
  thread_.join();
}

void AgentThread::Main() {
  prctl(PR_SET_NAME, "kintsugi-agent");
  id_ = std::this_thread::get_id();
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& e) {
      actor_->OnThrown(e.what());
    }
  }
}

void AgentThread::Post(core::AgentEvent event) {
  Call([this, event = std::move(event)] { Step(event); });
}

void AgentThread::PostReady(core::Ready ready) {
  Call([this, ready = std::move(ready)]() mutable {
    KINTSUGI_CHECK(core_, "a rank is ready that has not joined");
    core_->SetReady(std::move(ready));
  });
}

void AgentThread::BeginCore(core::AgentCore core) {
  KINTSUGI_CHECK(!core_, "a rank joins once");
  core_.emplace(std::move(core));
}

void AgentThread::Step(const core::AgentEvent& event) {
  KINTSUGI_CHECK(core_, "an event came before the rank has joined");
  KINTSUGI_CHECK(std::this_thread::get_id() == id_, "the core is stepped by the agent's thread alone");
  for (const core::AgentAction& action : core_->Step(event)) actor_->Act(action);
}

}  // namespace kintsugi
