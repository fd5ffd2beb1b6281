#include "runtime/process/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

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

}  // namespace

void BecomeReaper() { (void)prctl(PR_SET_CHILD_SUBREAPER, 1); }

size_t KillOrphans(const std::string& assignment, const std::function<bool(pid_t)>& is_known) {
  size_t left = 0;
  for (pid_t pid : Children()) {
    if (is_known(pid)) continue;
    if (HasEnded(pid)) {
      (void)waitpid(pid, nullptr, WNOHANG);
      ++left;  // what was below it is ours from now on: look once more
      continue;
    }
    if (!Carries(pid, assignment)) continue;
    (void)kill(pid, SIGKILL);
    ++left;
  }
  return left;
}

void ReapOrphans(const std::function<bool(pid_t)>& is_known) {
  for (pid_t pid : Children())
    if (!is_known(pid) && HasEnded(pid)) (void)waitpid(pid, nullptr, WNOHANG);
}

}  // namespace kintsugi
