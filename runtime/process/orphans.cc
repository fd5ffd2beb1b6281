#include "runtime/process/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace kintsugi {
namespace {

// Of all threads: an orphan is given to one of them.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream list(task.path() / "children");
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  }
  return children;
}

std::set<pid_t>& Kept() KINTSUGI_REQUIRES(ReapingMutex()) {
  static std::set<pid_t> kept;
  return kept;
}

bool Carries(pid_t pid, const std::string& assignment) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry == assignment) return true;
  return false;
}

bool HasEnded(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// On its way out: its memory, and its environment with it, is gone before the process is.
bool IsEnding(pid_t pid) {
  constexpr unsigned long kPfExiting = 0x4;  // <linux/sched.h>, shown in field 9 of stat
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string state;
  long skipped = 0;
  unsigned long flags = 0;
  fields >> state;
  for (int i = 0; i < 5; ++i) fields >> skipped;
  return (fields >> flags) && (flags & kPfExiting) != 0;
}

}  // namespace

Mutex& ReapingMutex() {
  static Mutex mutex;
  return mutex;
}

void KeepFromReaping(pid_t pid) { Kept().insert(pid); }
void LeaveToReaping(pid_t pid) { Kept().erase(pid); }

void BecomeReaper() { (void)prctl(PR_SET_CHILD_SUBREAPER, 1); }

size_t KillOrphans(const std::string& assignment, const std::function<bool(pid_t)>& is_known) {
  size_t left = 0;
  for (pid_t pid : Children()) {
    const MutexLock paused(ReapingMutex());
    if (Kept().count(pid) > 0 || is_known(pid)) continue;
    if (HasEnded(pid)) {
      (void)waitpid(pid, nullptr, WNOHANG);
      ++left;  // what was below it is ours from now on: look once more
      continue;
    }
    if (Carries(pid, assignment))
      (void)kill(pid, SIGKILL);
    else if (!IsEnding(pid))  // whose it was cannot be told any more: it is waited for
      continue;
    ++left;
  }
  return left;
}

void ReapOrphans(const std::function<bool(pid_t)>& is_known) {
  for (pid_t pid : Children()) {
    const MutexLock paused(ReapingMutex());
    if (Kept().count(pid) == 0 && !is_known(pid) && HasEnded(pid)) (void)waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace kintsugi
