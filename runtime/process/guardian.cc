#include "runtime/process/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "runtime/process/child_setup.h"
#include "runtime/process/process_sweep.h"

namespace kintsugi {
namespace {

constexpr char kWatch = 'w';
constexpr char kRelease = 'r';
constexpr int kHelperSocket = 3;

struct Order {
  char what;
  pid_t group;
};

// Everything from here to HelperMain runs in the forked helper of a process that may have threads: system calls only.

struct Groups {
  pid_t numbers[Guardian::kMaxGroups];
  size_t count = 0;

  void Add(pid_t group) {
    if (count < Guardian::kMaxGroups) numbers[count++] = group;
  }
  void Remove(pid_t group) {
    for (size_t i = 0; i < count; ++i) {
      if (numbers[i] == group) numbers[i--] = numbers[--count];
    }
  }
  void Kill() const {
    for (size_t i = 0; i < count; ++i) ::kill(-numbers[i], SIGKILL);
  }
};

void LeaveTheLauncher(int socket) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, kGuardProcessName);
  (void)!::chdir("/");  // a directory that stays held harms nobody
  const int wanted[kHelperSocket + 1] = {-1, -1, -1, socket};
  int scratch[kHelperSocket + 1];
  if (!RenumberDescriptors(wanted, scratch, kHelperSocket + 1, false)) ::_exit(1);
}

[[noreturn]] void HelperMain(int socket, const char* environment_mark) {
  LeaveTheLauncher(socket);
  Groups groups;
  for (;;) {
    Order order{};
    const ssize_t size = ::recv(kHelperSocket, &order, sizeof(order), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;  // the other end is gone
    if (size != sizeof(order)) continue;
    if (order.what == kWatch && order.group > 1) groups.Add(order.group);
    if (order.what == kRelease) groups.Remove(order.group);
  }
  groups.Kill();
  KillProcessesWithEnvironment(environment_mark);
  groups.Kill();
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::Start(std::string environment_mark) {
  if (!environment_mark.empty() && environment_mark.find('=') == std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  "guardian: the mark must read NAME=VALUE, got \"" + environment_mark + "\"");
  }
  std::unique_ptr<Guardian> guardian(new Guardian(std::move(environment_mark)));
  KINTSUGI_RETURN_IF_ERROR(guardian->StartHelper());
  return guardian;
}

Guardian::~Guardian() {
  for (const pid_t group : groups_) ::kill(-group, SIGKILL);
  KillProcessesWithEnvironment(environment_mark_.c_str());
  EndHelper();
}

Status Guardian::StartHelper() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(StatusCode::kUnavailable, std::string("guardian: no socket pair: ") + std::strerror(errno));
  }
  socket_.Reset(ends[0]);
  const UniqueFd helper_end(ends[1]);
  pid_ = ::fork();
  if (pid_ == 0) HelperMain(helper_end.get(), environment_mark_.c_str());
  if (pid_ < 0) {
    return Status(StatusCode::kUnavailable,
                  std::string("guardian: cannot fork its helper (process limit?): ") + std::strerror(errno));
  }
  return Status::Ok();
}

bool Guardian::Tell(char order, pid_t process_group) {
  const Order message{order, process_group};
  return ::send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(message);
}

Status Guardian::Watch(pid_t process_group) {
  if (process_group <= 1) {
    return Status(StatusCode::kInvalidArgument,
                  "guardian: " + std::to_string(process_group) + " is no process group of a worker");
  }
  if (groups_.size() >= kMaxGroups) {
    return Status(StatusCode::kResourceExhausted,
                  "guardian: watches " + std::to_string(kMaxGroups) + " process groups already");
  }
  groups_.insert(process_group);
  if (Tell(kWatch, process_group)) return Status::Ok();
  const Status status = Replace();
  if (!status.ok()) groups_.erase(process_group);
  return status;
}

Status Guardian::Replace() {
  EndHelper();
  KINTSUGI_RETURN_IF_ERROR(StartHelper());
  for (const pid_t group : groups_)
    if (!Tell(kWatch, group))
      return Status(StatusCode::kUnavailable,
                    "guardian: its helper (pid " + std::to_string(pid_) + ") takes no orders");
  return Status::Ok();
}

Result<bool> Guardian::Mend() {
  siginfo_t info{};
  const bool lives =
      pid_ > 0 && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  if (lives) return false;
  KINTSUGI_RETURN_IF_ERROR(Replace());
  return true;
}

void Guardian::Release(pid_t process_group) {
  if (groups_.erase(process_group) > 0) (void)Tell(kRelease, process_group);
}

void Guardian::EndHelper() {
  if (pid_ <= 0) return;
  // SIGKILL rather than an order and a wait: the helper may be stopped.
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  socket_.Reset();
}

}  // namespace kintsugi
