// The two system calls on pidfds. libc's own header for them (glibc 2.36) cannot be used from C++: it lacks extern "C".
//
// Errors: -1 and errno, as the kernel says.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace kintsugi {

inline int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)); }

inline int PidfdSendSignal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0U));
}

}  // namespace kintsugi
