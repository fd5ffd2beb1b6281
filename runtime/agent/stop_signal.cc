#include "runtime/agent/stop_signal.h"

#include <unistd.h>

#include <atomic>

namespace kintsugi {
namespace {

// A handler has no context: what belongs to the process's one reaction lies here.
std::atomic<pid_t> holder{0};   // whose signal is left to its launcher; 0: nobody's
struct sigaction before_take {};  // written while nobody holds it

// A handler and not SIG_IGN, which programs that are started meanwhile would inherit. A forked child is no rank: there the
// signal does what it did before.
void LeaveToLauncher(int number) {
  if (holder.load() == getpid()) return;
  sigaction(number, &before_take, nullptr);
  raise(number);  // once this handler has returned
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == LeaveToLauncher;
}

}  // namespace

void StopSignal::Take() {
  if (taken_ || holder.load() == getpid()) return;
  struct sigaction ours {};
  ours.sa_handler = LeaveToLauncher;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  struct sigaction before {};
  if (sigaction(SIGTERM, nullptr, &before) != 0) return;
  if (!IsOurs(before)) before_take = before;  // else this is a forked child, which is a rank by itself
  holder = getpid();
  taken_ = sigaction(SIGTERM, &ours, nullptr) == 0;
  if (!taken_) holder = 0;
}

void StopSignal::PutBack() {
  if (!taken_) return;
  taken_ = false;
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) == 0 && IsOurs(now)) sigaction(SIGTERM, &before_take, nullptr);
  holder = 0;
}

}  // namespace kintsugi
