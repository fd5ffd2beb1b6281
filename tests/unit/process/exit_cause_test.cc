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
  EXPECT_EQ(DescribeExit(cause, false), "killed by signal " + std::to_string(SIGRTMIN + 6));
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

}  // namespace
}  // namespace kintsugi
