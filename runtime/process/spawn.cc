#include "runtime/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process/child_setup.h"
#include "runtime/process/pidfd.h"
#include "runtime/process/spawn_parts.h"

extern char** environ;

namespace kintsugi {
namespace {

bool ValidName(const std::string& name) {
  return !name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

Status SystemError(const std::string& what, int error) {
  return Status(StatusCode::kResourceExhausted, what + ": " + std::strerror(error));
}

Status CheckSpec(const ProcessSpec& spec) {
  const auto refuse = [&spec](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "cannot start \"" + spec.program + "\": " + what);
  };
  if (spec.program.find('\0') != std::string::npos) return refuse("its name contains a zero byte");
  for (const std::string& argument : spec.args) {
    if (argument.find('\0') != std::string::npos) return refuse("an argument contains a zero byte");
  }
  for (const auto& [name, value] : spec.environment) {
    if (!ValidName(name)) return refuse("\"" + name + "\" cannot name an environment variable");
    if (value.find('\0') != std::string::npos) return refuse("the value of " + name + " contains a zero byte");
  }
  for (const PassedFd& passed : spec.passed_fds) {
    if (!passed.variable.empty() && !ValidName(passed.variable)) {
      return refuse("\"" + passed.variable + "\" cannot name an environment variable");
    }
    if (passed.fd < 0 || ::fcntl(passed.fd, F_GETFD) < 0) {
      return refuse("descriptor " + std::to_string(passed.fd) + " to be passed is not open");
    }
  }
  return Status::Ok();
}

std::map<std::string, std::string> ChildEnvironment(const ProcessSpec& spec) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables.insert({text.substr(0, equals), text.substr(equals + 1)});
  }
  for (const std::string& name : spec.unset_environment) variables.erase(name);
  for (const auto& [name, value] : spec.environment) variables[name] = value;
  int number = kFirstPassedFd;
  for (const PassedFd& passed : spec.passed_fds) {
    if (!passed.variable.empty()) variables[passed.variable] = std::to_string(number);
    ++number;
  }
  return variables;
}

Result<std::pair<UniqueFd, UniqueFd>> MakeOutputPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return SystemError("no pipe for a process's output", errno);
  std::pair<UniqueFd, UniqueFd> pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return SystemError("no pipe for a process's output", errno);
  return pipe;
}

namespace {

// What the child reports when it could not become the program.
struct ChildFailure {
  int during_exec = 0;
  int error = 0;
};

// Everything that the child needs, made before the fork.
struct ChildPlan {
  std::string path;
  std::vector<std::string> argument_text;
  std::vector<std::string> environment_text;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  std::vector<int> wanted;  // descriptors in the order of their numbers in the child
  std::vector<int> scratch;
  pid_t parent = -1;
  bool own_process_group = true;
};

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<ChildPlan> MakePlan(const ProcessSpec& spec) {
  KINTSUGI_RETURN_IF_ERROR(CheckSpec(spec));
  ChildPlan plan;
  const std::map<std::string, std::string> variables = ChildEnvironment(spec);
  const auto path = variables.find("PATH");
  KINTSUGI_ASSIGN_OR_RETURN(plan.path,
                            FindProgram(spec.program, path == variables.end() ? "/usr/bin:/bin" : path->second));
  plan.argument_text.push_back(spec.program);
  plan.argument_text.insert(plan.argument_text.end(), spec.args.begin(), spec.args.end());
  for (const auto& [name, value] : variables) plan.environment_text.push_back(name + "=" + value);
  plan.arguments = Pointers(plan.argument_text);
  plan.environment = Pointers(plan.environment_text);
  plan.parent = ::getpid();
  plan.own_process_group = spec.own_process_group;
  return plan;
}

// Runs in the child: system calls only. `talk` is this end of the socket to the parent.
[[noreturn]] void BecomeProgram(ChildPlan& plan, int talk) {
  ChildFailure failure;
  const auto give_up = [&failure, &talk] {
    failure.error = errno;
    (void)::send(talk, &failure, sizeof(failure), MSG_NOSIGNAL);
    ::_exit(127);
  };
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up();
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before the line above took effect
  if (plan.own_process_group && ::setpgid(0, 0) != 0) give_up();
  char go = 0;
  if (::recv(talk, &go, 1, 0) != 1 || go != kGo) ::_exit(127);
  const int count = static_cast<int>(plan.wanted.size());
  // Room for `talk` above the child's own numbers: it must live until exec, and end with it.
  const int kept = ::fcntl(talk, F_DUPFD_CLOEXEC, count);
  if (kept < 0) give_up();
  talk = kept;
  if (!RenumberDescriptors(plan.wanted.data(), plan.scratch.data(), count, true)) give_up();
  ResetSignals();
  failure.during_exec = 1;
  ::execve(plan.path.c_str(), plan.arguments.data(), plan.environment.data());
  give_up();
  ::_exit(127);
}

// Blocks all signals of this thread for its life, so that no handler of this process runs in a forked child.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

Status ExecFailure(const ChildPlan& plan, const ChildFailure& failure) {
  const std::string reason = std::strerror(failure.error);
  if (failure.during_exec == 0) return SystemError("cannot prepare a process for \"" + plan.path + "\"", failure.error);
  if (failure.error == ENOENT) {
    return Status(StatusCode::kNotFound, "program \"" + plan.path + "\" cannot run: the interpreter that its first " +
                                             "line or its format names does not exist");
  }
  if (failure.error == ENOEXEC) {
    return Status(StatusCode::kFailedPrecondition, "\"" + plan.path +
                                                       "\" is not a program of this machine; a script needs a first "
                                                       "line such as #!/bin/sh");
  }
  if (failure.error == EACCES || failure.error == EPERM) {
    return Status(StatusCode::kPermissionDenied, "program \"" + plan.path + "\" may not be run: " + reason);
  }
  return SystemError("program \"" + plan.path + "\" cannot run", failure.error);
}

// Waits until the child has become its program (the socket closes) or says why not.
Status AwaitExec(const ChildPlan& plan, int talk) {
  pollfd waiting{talk, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kExecLimit).count()));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return Status(StatusCode::kDeadlineExceeded, "program \"" + plan.path + "\" did not start within " +
                                                     std::to_string(kExecLimit.count()) +
                                                     " s: is its file system reachable?");
  }
  ChildFailure failure;
  const ssize_t size = ::recv(talk, &failure, sizeof(failure), MSG_WAITALL);
  return size == sizeof(failure) ? ExecFailure(plan, failure) : Status::Ok();
}

}  // namespace

bool KillAndReap(pid_t pid, int pidfd, std::chrono::milliseconds limit) {
  ::kill(pid, SIGKILL);
  pollfd ended{pidfd, POLLIN, 0};
  if (pidfd >= 0) {
    while (::poll(&ended, 1, static_cast<int>(limit.count())) < 0 && errno == EINTR) {
    }
  }
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(pid, nullptr, pidfd >= 0 ? WNOHANG : 0);
  } while (reaped < 0 && errno == EINTR);
  return reaped != 0;
}

Result<SpawnedProcess> ForkExec(const ProcessSpec& spec, const std::function<Status(pid_t)>& before_exec) {
  KINTSUGI_ASSIGN_OR_RETURN(ChildPlan plan, MakePlan(spec));
  KINTSUGI_ASSIGN_OR_RETURN(auto out, MakeOutputPipe());
  KINTSUGI_ASSIGN_OR_RETURN(auto err, MakeOutputPipe());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError("no socket pair to start a process with", errno);
  }
  const UniqueFd talk(ends[0]);
  UniqueFd child_talk(ends[1]);
  plan.wanted = {-1, out.second.get(), err.second.get()};
  for (const PassedFd& passed : spec.passed_fds) plan.wanted.push_back(passed.fd);
  plan.scratch.resize(plan.wanted.size());

  SpawnedProcess process;
  {
    const SignalsBlocked blocked;
    process.pid = ::fork();
    if (process.pid == 0) BecomeProgram(plan, child_talk.get());
  }
  if (process.pid < 0) return SystemError("cannot fork for \"" + spec.program + "\" (process limit?)", errno);
  child_talk.Reset();
  process.pidfd.Reset(PidfdOpen(process.pid));
  Status status;
  if (!process.pidfd.valid()) {
    status = SystemError("no pidfd for \"" + spec.program + "\" (Linux 5.3 or newer is needed)", errno);
  }
  if (status.ok() && before_exec != nullptr) status = before_exec(process.pid);
  if (status.ok()) {
    (void)::send(talk.get(), &kGo, 1, MSG_NOSIGNAL);
    status = AwaitExec(plan, talk.get());
  }
  if (!status.ok()) {
    (void)KillAndReap(process.pid, process.pidfd.get());
    return status;
  }
  process.stdout_read = std::move(out.first);
  process.stderr_read = std::move(err.first);
  return process;
}

}  // namespace kintsugi
