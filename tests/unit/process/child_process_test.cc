#include "runtime/process/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(ChildProcess, TellsTheExitCode) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("exit 3")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_EQ(harness.cause().kind, ExitKind::kExitCode);
  EXPECT_EQ(harness.cause().code, 3);
  EXPECT_EQ(harness.cause().text, "exited with code 3");
  EXPECT_FALSE(harness.process().running());
}

TEST(ChildProcess, TellsTheSignalAndWhetherItWasOrdered) {
  ProcessHarness self;
  ASSERT_TRUE(self.Start(Shell("kill -KILL $$")).ok());
  ASSERT_TRUE(self.RunToExit());
  EXPECT_EQ(self.cause().kind, ExitKind::kSignal);
  EXPECT_EQ(self.cause().signal, SIGKILL);
  EXPECT_EQ(self.cause().text, "killed by SIGKILL");
  EXPECT_FALSE(self.cause().ordered);

  ProcessHarness ordered;
  ASSERT_TRUE(ordered.Start(Shell("sleep 1000")).ok());
  ASSERT_TRUE(ordered.process().Kill(SIGTERM).ok());
  ASSERT_TRUE(ordered.RunToExit());
  EXPECT_EQ(ordered.cause().text, "killed by SIGTERM");
  EXPECT_TRUE(ordered.cause().ordered);
  EXPECT_EQ(ordered.process().Kill(SIGTERM).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ordered.process().KillGroup(SIGTERM).code(), StatusCode::kFailedPrecondition);
}

TEST(ChildProcess, KillsAFrozenProcess) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("kill -STOP $$; echo never")).ok());
  ASSERT_TRUE(harness.process().KillGroup(SIGKILL).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_TRUE(harness.cause().ordered);
  EXPECT_TRUE(harness.lines().empty());
}

// A debugger that does not let go: the kernel gives the dead process to it first, and a wait for it would last for
// ever.
TEST(ChildProcess, TellsTheEndOfAProcessThatAnotherOneTraces) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("sleep 1000")).ok());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t traced = harness.process().pid();
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    const char seized = ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 'y' : 'n';
    (void)!::write(ready[1], &seized, 1);
    for (;;) ::pause();
  }
  char seized = 0;
  ASSERT_EQ(::read(ready[0], &seized, 1), 1);
  if (seized == 'y') {
    ASSERT_TRUE(harness.process().KillGroup(SIGKILL).ok());
    EXPECT_TRUE(harness.RunToExit());
    EXPECT_THAT(harness.cause().text, ::testing::HasSubstr("traces it"));
    EXPECT_TRUE(harness.cause().ordered);
  }
  ::kill(tracer, SIGKILL);
  ::waitpid(tracer, nullptr, 0);
  ::waitpid(traced, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  if (seized != 'y') GTEST_SKIP() << "this process may not trace others";
}

TEST(ChildProcess, BringsLinesOfBothStreamsAndTheUnfinishedLast) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("echo one; echo two >&2; printf 'th\\351ree\\n\\nrest'")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_THAT(harness.Texts(OutputStream::kStdout), ElementsAre("one", "th\351ree", "", "rest"));
  EXPECT_THAT(harness.Texts(OutputStream::kStderr), ElementsAre("two"));
}

TEST(ChildProcess, CutsOverlongLinesIntoPieces) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("head -c 200000 /dev/zero | tr '\\0' x; echo; echo end")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  size_t bytes = 0;
  for (const ProcessHarness::Line& line : harness.lines()) {
    EXPECT_LE(line.text.size(), 64u * 1024);
    bytes += line.text.size();
  }
  EXPECT_EQ(bytes, 200003u);
  EXPECT_EQ(harness.lines().back().text, "end");
}

TEST(ChildProcess, PutsTheEndOfTheErrorOutputIntoTheCause) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("for i in $(seq 1 50); do echo line $i >&2; done; echo out; exit 1")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  ASSERT_THAT(harness.cause().last_stderr_lines, SizeIs(20));
  EXPECT_EQ(harness.cause().last_stderr_lines.front(), "line 31");
  EXPECT_EQ(harness.cause().last_stderr_lines.back(), "line 50");
  EXPECT_THAT(harness.Texts(OutputStream::kStderr), SizeIs(50)) << "what the cause took is delivered too";
}

TEST(ChildProcess, SaysHowLongItsErrorOutputWasSilent) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("echo early >&2; sleep 0.2; exit 1")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_GE(harness.cause().silent_for, std::chrono::milliseconds(100));
}

TEST(ChildProcess, EndsTheGroupOfAnEndedProcessAndDoesNotWaitForItsOutput) {
  ProcessHarness harness;
  // The grandchild holds both pipes open and ignores everything that can be ignored.
  ASSERT_TRUE(harness.Start(Shell("(trap '' TERM HUP INT; while :; do sleep 1; done) & echo $!; exit 5")).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_EQ(harness.cause().code, 5);
  const pid_t grandchild = std::stoi(harness.FirstLine());
  EXPECT_TRUE(EventuallyTrue([grandchild] { return IsGone(grandchild); }));
}

TEST(ChildProcess, EndsOutputThatADescendantOutsideTheGroupHoldsOpen) {
  ProcessHarness harness;
  const ProcessSpec spec = Shell("setsid sh -c 'echo $$; while :; do echo x; sleep 0.01; done' & sleep 0.3; exit 0");
  ASSERT_TRUE(harness.Start(spec).ok());
  ASSERT_TRUE(harness.RunToEnd());
  const pid_t escaped = std::stoi(harness.FirstLine());
  EXPECT_FALSE(IsGone(escaped)) << "the test's own premise: it left the group";
  ::kill(escaped, SIGKILL);
}

TEST(ChildProcess, DestructorKillsTheWholeGroup) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $!; wait")).ok());
  ASSERT_TRUE(harness.RunToLines(1));
  const pid_t grandchild = std::stoi(harness.FirstLine());
  const pid_t child = harness.process().pid();
  harness.Destroy();
  EXPECT_EQ(::kill(child, 0), -1) << "reaped, not only killed";
  EXPECT_TRUE(EventuallyTrue([grandchild] { return IsGone(grandchild); }));
  harness.Settle();
  EXPECT_FALSE(harness.exited()) << "no callback after the destructor";
}

TEST(ChildProcess, MayBeDestroyedInsideEachCallback) {
  ProcessHarness at_exit;
  at_exit.on_exit = [&at_exit] { at_exit.Destroy(); };
  ASSERT_TRUE(at_exit.Start(Shell("echo a; echo b >&2")).ok());
  ASSERT_TRUE(at_exit.RunToExit());
  at_exit.Settle();
  EXPECT_EQ(at_exit.lines().size(), at_exit.lines_at_exit());
  EXPECT_FALSE(at_exit.output_ended());

  ProcessHarness at_line;
  at_line.on_line = [&at_line] { at_line.Destroy(); };
  ASSERT_TRUE(at_line.Start(Shell("echo a; echo b; sleep 1000")).ok());
  ASSERT_TRUE(at_line.RunToLines(1));
  at_line.Settle();
  EXPECT_EQ(at_line.lines().size(), 1u);
  EXPECT_FALSE(at_line.exited());

  ProcessHarness at_end;
  at_end.on_output_end = [&at_end] { at_end.Destroy(); };
  ASSERT_TRUE(at_end.Start(Shell("echo a")).ok());
  ASSERT_TRUE(at_end.RunToEnd());
  at_end.Settle();
  EXPECT_EQ(at_end.lines().size(), 1u);
}

TEST(ChildProcess, KnowsNoReasonWhenSomeoneElseTookTheStatus) {
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(Shell("exit 3")).ok());
  const pid_t pid = harness.process().pid();
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_EQ(harness.cause().kind, ExitKind::kUnknown);
}

// A child that dies young leaves events of descriptors whose numbers its successor's get.
TEST(ChildProcess, OneThatBeginsAtTheEndOfAnotherIsNotTakenForIt) {
  boost::asio::io_context io;
  std::unique_ptr<ChildProcess> process;
  std::vector<std::string> ends;
  ChildProcess::Callbacks callbacks;
  const auto begin = [&] {
    process.reset();
    auto begun = ChildProcess::Spawn(io, Shell("exit 3"), callbacks);
    ASSERT_TRUE(begun.ok()) << begun.status().ToString();
    process = std::move(begun).value();
  };
  callbacks.on_exit = [&](const ExitCause& cause) {
    ends.push_back(cause.text);
    if (ends.size() < 200) begin();
  };
  begin();
  io.run();
  EXPECT_THAT(ends, SizeIs(200));
  EXPECT_THAT(ends, ::testing::Each("exited with code 3"));
}

TEST(ChildProcess, RunsManyAtOnce) {
  boost::asio::io_context io;
  std::vector<std::unique_ptr<ChildProcess>> processes;
  std::vector<int> codes(20, -1);
  size_t ended = 0;
  for (int i = 0; i < 20; ++i) {
    ChildProcess::Callbacks callbacks;
    callbacks.on_exit = [&codes, i](const ExitCause& cause) { codes[static_cast<size_t>(i)] = cause.code; };
    callbacks.on_output_end = [&ended] { ++ended; };
    auto spawned = ChildProcess::Spawn(io, Shell("exit " + std::to_string(i)), std::move(callbacks));
    ASSERT_TRUE(spawned.ok()) << spawned.status().ToString();
    processes.push_back(std::move(spawned).value());
  }
  while (ended < 20) ASSERT_GT(io.run_one_for(kSafety), 0u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(codes[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace kintsugi
