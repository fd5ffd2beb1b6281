#include "runtime/agent/stop_caller.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <utility>

#include "runtime/base/check.h"

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
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(!closed_, "a call is requested of a caller that is closed");
  KINTSUGI_CHECK(ended_ <= begun_ && begun_ <= requested_, "a call is answered that was not requested");
  changed_.NotifyAll();
  return ++requested_;
}

void StopCaller::Cancel() {
  std::shared_ptr<CancelToken> cancel;
  {
    const MutexLock lock(mutex_);
    cancel = cancel_;
    late_ = requested_;
  }
  if (cancel) cancel->Cancel();
}

void StopCaller::AwaitIdle() {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return closed_ || ended_ == requested_; });
}

void StopCaller::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void StopCaller::Main() {
  prctl(PR_SET_NAME, "kintsugi-stop");
  MutexLock lock(mutex_);
  for (;;) {
    changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return closed_ || begun_ < requested_; });
    if (closed_) return;
    const uint64_t answered = begun_ = requested_;
    const auto cancel = cancel_ = std::make_shared<CancelToken>();
    const bool is_late = answered <= late_;
    lock.Unlock();
    if (is_late) cancel->Cancel();
    call_(*cancel);
    lock.Lock();
    cancel_.reset();
    ended_ = answered;
    changed_.NotifyAll();
    lock.Unlock();
    returned_(answered);
    lock.Lock();
  }
}

}  // namespace kintsugi
