#include "runtime/process/exit_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace kintsugi {
namespace {

TEST(ExitCause, SpeaksPlainly) {
  ExitCause cause;
  cause.kind = ExitKind::kSignal;
  cause.signal = SIGSEGV;
  EXPECT_EQ(DescribeExit(cause, true), "killed by SIGSEGV (core dumped)");
  cause.signal = SIGRTMIN + 6;
  EXPECT_EQ(DescribeExit(cause, false), "killed by SIGRTMIN+6");
  cause.kind = ExitKind::kOutOfMemory;
  EXPECT_EQ(DescribeExit(cause, false), "out of memory (killed by the kernel)");
  const ExitCause failed = SpawnFailure(Status(StatusCode::kNotFound, "program \"x\" ..."), TimePoint(Duration(5)));
  EXPECT_EQ(failed.kind, ExitKind::kSpawnFailed);
  EXPECT_EQ(failed.text, "could not be started: program \"x\" ...");
}

TEST(LineTail, KeepsTheNewestLinesWithinBothBounds) {
  LineTail tail;
  for (int i = 0; i < 100; ++i) tail.Add(std::to_string(i));
  EXPECT_EQ(tail.lines().size(), LineTail::kMaxLines);
  EXPECT_EQ(tail.lines().back(), "99");
  tail.Add(std::string(3000, 'a'));
  tail.Add(std::string(2000, 'b'));
  EXPECT_THAT(tail.lines(), testing::ElementsAre(std::string(2000, 'b')));
  tail.Add(std::string(100000, 'c') + "end");
  ASSERT_EQ(tail.lines().size(), 1u);
  EXPECT_EQ(tail.lines()[0].size(), LineTail::kMaxBytes);
  EXPECT_TRUE(tail.lines()[0].ends_with("end"));
}

TEST(LineTail, KeepsOfAProgressBarWhatATerminalWouldShow) {
  LineTail tail;
  tail.Add(" 10%|#\r 20%|##\r 30%|###");
  tail.Add("of a file from elsewhere\r");
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{"\r 30%|###", "of a file from elsewhere\r"}));
}

TEST(TellingLine, IsTheOneThatNamesTheException) {
  EXPECT_EQ(TellingLine({"  File \"train.py\", line 9, in <module>", "    save(model)", "    ^^^^^^^^^^^",
                         "OSError: [Errno 28] No space left on device", "warning: 1 leaked semaphore"}),
            "OSError: [Errno 28] No space left on device");
  EXPECT_EQ(TellingLine({"[rank0]: Traceback (most recent call last):", "[rank0]:   File \"a.py\", line 11, in <module>",
                         "[rank0]:     raise KeyError(\"learning_rat\")", "[rank0]: KeyError: 'learning_rat'"}),
            "KeyError: 'learning_rat'")
      << "torch says the rank before each line";
  EXPECT_EQ(TellingLine({"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "ValueError: first", "",
                         "During handling of the above exception, another exception occurred:", "",
                         "Traceback (most recent call last):", "  File \"a.py\", line 2, in g", "TypeError: second"}),
            "TypeError: second");
  EXPECT_EQ(TellingLine({"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "ValueError: it ends here",
                         "Exception ignored in: <function Pool.__del__>", "Traceback (most recent call last):",
                         "  File \"pool.py\", line 5, in __del__", "ResourceWarning: goes on"}),
            "ValueError: it ends here");
}

TEST(LastWords, SayHowOldTheyAre) {
  ExitCause cause;
  EXPECT_EQ(LastWords(cause), "");
  cause.last_stderr_lines = {"KeyError: 'loss'"};
  EXPECT_EQ(LastWords(cause), "; last line of its error output: KeyError: 'loss'");
  cause.silent_for = std::chrono::milliseconds(42'900);
  EXPECT_EQ(LastWords(cause), "; last line of its error output, 42 s before: KeyError: 'loss'");
}

TEST(TellingLine, IsElseTheLastThatNothingWroteOver) {
  EXPECT_EQ(TellingLine({}), "");
  EXPECT_EQ(TellingLine({"out of memory", "   "}), "out of memory");
  EXPECT_EQ(TellingLine({"out of memory", "\r 30%|###  | 3/10"}), "out of memory");
  EXPECT_EQ(TellingLine({"in a file from elsewhere\r"}), "in a file from elsewhere");
  EXPECT_EQ(TellingLine({"\r 10%|#\r 30%|###  | 3/10"}), " 30%|###  | 3/10") << "there is nothing else";
  EXPECT_EQ(TellingLine({" 30%|###Traceback (most recent call last):", "  File \"a.py\", line 1, in f"}),
            "  File \"a.py\", line 1, in f")
      << "the end of it was cut off";
}

}  // namespace
}  // namespace kintsugi
