// SIGTERM, and warnings of batch systems, while a rank trains: nothing happens to it, and what the program does about it comes back afterwards.
#include "runtime/agent/stop_signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace kintsugi {
namespace {

int came = 0;
void Count(int) { ++came; }

// Sets what the program does about SIGTERM, for the length of a test.
class Program {
 public:
  explicit Program(void (*handler)(int)) : before_(signal(SIGTERM, handler)) { came = 0; }
  ~Program() { signal(SIGTERM, before_); }

 private:
  void (*before_)(int);
};

// How a forked child ends to which SIGTERM is sent; it leaves with 7 where it outlives that.
int EndOfChild() {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGTERM);
    _exit(7);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(StopSignal, DoesNothingWhileItIsTakenAndComesBack) {
  const Program program(Count);
  StopSignal stop;
  stop.Take();
  raise(SIGTERM);
  EXPECT_EQ(came, 0);
  stop.PutBack();
  raise(SIGTERM);
  EXPECT_EQ(came, 1);
  stop.PutBack();
  raise(SIGTERM);
  EXPECT_EQ(came, 2);
}

// By which batch systems warn. A program's own handler is there for a reason.
TEST(StopSignal, TakesWarningsThatTheProgramDoesNotHear) {
  StopSignal stop;
  came = 0;
  const auto before = signal(SIGUSR2, Count);
  stop.Take();
  for (const int number : {SIGUSR1, SIGXCPU, SIGXFSZ}) raise(number);
  EXPECT_EQ(came, 0);
  raise(SIGUSR2);
  EXPECT_EQ(came, 1);
  stop.PutBack();
  signal(SIGUSR2, before);
  for (const int number : {SIGUSR1, SIGXCPU, SIGXFSZ}) EXPECT_EQ(signal(number, SIG_DFL), SIG_DFL);
}

TEST(StopSignal, TakesWhatAnOperatorNames) {
  StopSignal stop;
  came = 0;
  const auto before = signal(SIGRTMIN + 4, Count);
  stop.Take({SIGALRM, SIGRTMIN + 3, SIGRTMIN + 4, SIGUSR1});
  for (const int number : {SIGALRM, SIGRTMIN + 3, SIGUSR1}) raise(number);
  EXPECT_EQ(came, 0);
  raise(SIGRTMIN + 4);
  EXPECT_EQ(came, 1) << "the program has a handler for it";
  stop.PutBack();
  signal(SIGRTMIN + 4, before);
  for (const int number : {SIGALRM, SIGRTMIN + 3, SIGUSR1}) EXPECT_EQ(signal(number, SIG_DFL), SIG_DFL);
}

TEST(StopSignal, ComesBackWithItsEnd) {
  const Program program(Count);
  { StopSignal().Take(); }
  raise(SIGTERM);
  EXPECT_EQ(came, 1);
}

TEST(StopSignal, IsNoAffairOfAForkedChild) {
  const Program program(SIG_DFL);
  StopSignal stop;
  stop.Take();
  EXPECT_EQ(EndOfChild(), -SIGTERM) << "a data loader's worker is ended by it";
  raise(SIGTERM);
}

TEST(StopSignal, LeavesWhatTheProgramSetMeanwhile) {
  const Program program(SIG_DFL);
  StopSignal stop;
  stop.Take();
  signal(SIGTERM, Count);
  stop.PutBack();
  raise(SIGTERM);
  EXPECT_EQ(came, 1);
}

TEST(StopSignal, IsTakenOnceInAProcess) {
  const Program program(Count);
  StopSignal first, second;
  first.Take();
  second.Take();
  second.PutBack();
  raise(SIGTERM);
  EXPECT_EQ(came, 0) << "the first one has it still";
  first.PutBack();
  raise(SIGTERM);
  EXPECT_EQ(came, 1);
}

}  // namespace
}  // namespace kintsugi
