#include "tools/watch/program.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace kintsugi::watch {
namespace {

constexpr int kHandedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : more) replaced |= text.starts_with(name + "=");
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : more) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<WatchedProgram> WatchedProgram::Start(const std::vector<std::string>& command,
                                             const std::vector<std::pair<std::string, std::string>>& more) {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (int signal : kHandedOn) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // What this command ignores for itself the program does not; what its parent ignores (nohup) it does.
  sigset_t defaults;
  sigemptyset(&defaults);
  for (int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &before);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> words = command, environment = EnvironmentWith(more);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words.front().c_str(), nullptr, &attributes, Pointers(words).data(),
                                 Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return Status(StatusCode::kUnavailable, "'" + command.front() + "' cannot be started: " + std::strerror(error));
  }
  return WatchedProgram(pid, signals);
}

std::optional<int> WatchedProgram::Await(Duration limit) {
  const TimePoint until = SteadyClock::SteadyNow() + limit;
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) return status;
    const int64_t left = (until - SteadyClock::SteadyNow()).count();
    if (left <= 0) return std::nullopt;
    const timespec wait{left / 1'000'000'000, left % 1'000'000'000};
    siginfo_t came{};
    const int signal = sigtimedwait(&signals_, &came, &wait);
    // What a terminal sends (Ctrl-C) it sends to the program, too.
    if (signal > 0 && signal != SIGCHLD && came.si_code != SI_KERNEL) kill(pid_, signal);
  }
}

int ExitCodeOf(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the program's own core says more
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
  return 128 + signal;
}

}  // namespace kintsugi::watch
