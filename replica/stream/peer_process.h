// Who and where a process is, as far as another process of the same host can check it.
//
// Threads: alive() may be called from several threads.
// Errors: kFailedPrecondition where the process cannot be watched.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "runtime/base/result.h"

namespace kintsugi {

// Equal in two processes exactly when they share kernel boot, process id namespace and user, and so may share memory.
using HostId = std::array<uint64_t, 2>;
HostId ThisHost();

// Start time of a process in clock ticks since boot: with the id it names one life of a process. 0 if there is none.
uint64_t StartTicks(pid_t pid);

class PeerProcess {
 public:
  static Result<PeerProcess> Watch(pid_t pid);
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;
  ~PeerProcess();

  pid_t pid() const { return pid_; }
  // False once the process has ended, zombies included. One system call.
  bool alive() const;

 private:
  PeerProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  pid_t pid_ = 0;
  int pidfd_ = -1;
};

}  // namespace kintsugi
