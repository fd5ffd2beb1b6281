#include "runtime/agent/stop_caller.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <utility>

namespace kintsugi {

StopCaller::StopCaller(Call call, Returned returned) : call_(std::move(call)), returned_(std::move(returned)) {
  // The host's signals stay with the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Main(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StopCaller::~StopCaller() { Close(); }

uint64_t StopCaller::Request() {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
  return ++requested_;
}

void StopCaller::Cancel() {
  std::shared_ptr<CancelToken> cancel;
  {
    std::lock_guard lock(mutex_);
    cancel = cancel_;
  }
  if (cancel) cancel->Cancel();
}

void StopCaller::AwaitIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || ended_ == requested_; });
}

void StopCaller::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StopCaller::Main() {
  prctl(PR_SET_NAME, "kintsugi-stop");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || begun_ < requested_; });
    if (closed_) return;
    const uint64_t answered = begun_ = requested_;
    const auto cancel = cancel_ = std::make_shared<CancelToken>();
    lock.unlock();
    call_(*cancel);
    lock.lock();
    cancel_.reset();
    ended_ = answered;
    changed_.notify_all();
    lock.unlock();
    returned_(answered);
    lock.lock();
  }
}

}  // namespace kintsugi
