// SigpipeGuard: writes to a socket whose peer is gone must not end the process.
//
// Gloo writes without MSG_NOSIGNAL, so the first write after a peer's death raises SIGPIPE. A guest library may not ignore
// the signal for the whole process; this blocks it on the calling thread for a while and takes away what it raised.
// Threads: belongs to the thread that makes it. A thread created meanwhile inherits the blocked mask.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace kintsugi {

class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~SigpipeGuard() {
    // Where the host blocks the signal by itself there is nothing to put back.
    if (sigismember(&before_, SIGPIPE)) return;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t before_;
};

}  // namespace kintsugi
