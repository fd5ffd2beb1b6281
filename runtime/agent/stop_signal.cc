#include "runtime/agent/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <utility>

#include "runtime/base/warning_signals.h"

namespace kintsugi {
namespace {

// A handler has no context: what belongs to the process's one reaction to each lies here.
struct Reaction {
  bool taken = false;          // changed by the holder alone
  struct sigaction before {};  // written while nobody holds it
};
std::array<Reaction, NSIG> reactions;  // by number
std::atomic<pid_t> holder{0};  // whose signals are left to its launcher; 0: nobody's

// A handler and not SIG_IGN, which programs that are started meanwhile would inherit. A forked child is no rank: there the
// signal does what it did before.
void LeaveToLauncher(int number) {
  if (holder.load() == getpid()) return;
  sigaction(number, &reactions[static_cast<size_t>(number)].before, nullptr);
  raise(number);  // once this handler has returned
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == LeaveToLauncher;
}

bool IsDefault(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

void TakeOne(int number) {
  Reaction& reaction = reactions[static_cast<size_t>(number)];
  struct sigaction ours {};
  ours.sa_handler = LeaveToLauncher;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) != 0) return;
  const bool ours_before = IsOurs(before);  // a forked child, which is a rank by itself
  // A program's own handler is there for a reason; only the end of the job is the run's affair whatever it says.
  if (!ours_before && number != SIGTERM && !IsDefault(before)) return;
  if (!ours_before) reaction.before = before;
  reaction.taken = sigaction(number, &ours, nullptr) == 0;
}

}  // namespace

void StopSignal::Take(const std::vector<int>& further) {
  if (taken_ || holder.load() == getpid()) return;
  for (const int number : kWarningSignals) TakeOne(number);
  for (const int number : further) TakeOne(number);
  TakeOne(SIGXFSZ);
  holder = getpid();
  taken_ = true;
}

void StopSignal::PutBack() {
  if (!taken_) return;
  taken_ = false;
  for (int number = 1; number < NSIG; ++number) {
    Reaction& reaction = reactions[static_cast<size_t>(number)];
    struct sigaction now {};
    if (std::exchange(reaction.taken, false) && sigaction(number, nullptr, &now) == 0 && IsOurs(now))
      sigaction(number, &reaction.before, nullptr);
  }
  holder = 0;
}

}  // namespace kintsugi
