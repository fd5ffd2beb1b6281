#include "runtime/agent/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

namespace kintsugi {
namespace {

// A handler has no context: what belongs to the process's one reaction to each lies here.
struct Reaction {
  const int number;
  const bool from_program;            // also where the program has a handler of its own
  bool taken = false;                 // changed by the holder alone
  struct sigaction before {};         // written while nobody holds it
};
std::array<Reaction, 5> reactions{
    {{SIGTERM, true}, {SIGUSR1, false}, {SIGUSR2, false}, {SIGXCPU, false}, {SIGXFSZ, false}}};
std::atomic<pid_t> holder{0};  // whose signals are left to its launcher; 0: nobody's

// A handler and not SIG_IGN, which programs that are started meanwhile would inherit. A forked child is no rank: there the
// signal does what it did before.
void LeaveToLauncher(int number) {
  if (holder.load() == getpid()) return;
  for (const Reaction& reaction : reactions)
    if (reaction.number == number) sigaction(number, &reaction.before, nullptr);
  raise(number);  // once this handler has returned
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == LeaveToLauncher;
}

bool IsDefault(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

void TakeOne(Reaction& reaction) {
  struct sigaction ours {};
  ours.sa_handler = LeaveToLauncher;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  struct sigaction before {};
  if (sigaction(reaction.number, nullptr, &before) != 0) return;
  const bool ours_before = IsOurs(before);  // a forked child, which is a rank by itself
  if (!ours_before && !reaction.from_program && !IsDefault(before)) return;
  if (!ours_before) reaction.before = before;
  reaction.taken = sigaction(reaction.number, &ours, nullptr) == 0;
}

}  // namespace

void StopSignal::Take() {
  if (taken_ || holder.load() == getpid()) return;
  for (Reaction& reaction : reactions) TakeOne(reaction);
  holder = getpid();
  taken_ = true;
}

void StopSignal::PutBack() {
  if (!taken_) return;
  taken_ = false;
  for (Reaction& reaction : reactions) {
    struct sigaction now {};
    if (std::exchange(reaction.taken, false) && sigaction(reaction.number, nullptr, &now) == 0 && IsOurs(now))
      sigaction(reaction.number, &reaction.before, nullptr);
  }
  holder = 0;
}

}  // namespace kintsugi
