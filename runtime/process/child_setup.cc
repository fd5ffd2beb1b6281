#include "runtime/process/child_setup.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace kintsugi {
namespace {

// Kernels before 5.11 lack close_range's flag: one call per possible number then.
void CloseFrom(int first, bool at_exec) {
  if (::close_range(static_cast<unsigned>(first), ~0U, at_exec ? CLOSE_RANGE_CLOEXEC : 0) == 0) return;
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1 << 20;
  const int end = known ? static_cast<int>(limit.rlim_cur) : 1 << 20;
  for (int fd = first; fd < end; ++fd) {
    if (at_exec) {
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    } else {
      ::close(fd);
    }
  }
}

}  // namespace

bool RenumberDescriptors(const int* wanted, int* scratch, int count, bool at_exec) {
  // First out of the way of all targets, then into place: a source may bear the number of another one's target.
  for (int i = 0; i < count; ++i) {
    const int source = wanted[i] >= 0 ? wanted[i] : ::open("/dev/null", O_RDWR | O_CLOEXEC);
    scratch[i] = source < 0 ? -1 : ::fcntl(source, F_DUPFD_CLOEXEC, count);
    if (scratch[i] < 0) return false;
  }
  for (int i = 0; i < count; ++i) {
    if (::dup2(scratch[i], i) < 0) return false;
  }
  CloseFrom(count, at_exec);
  return true;
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);  // fails for those we cannot set
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace kintsugi
