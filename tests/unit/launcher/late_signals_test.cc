// Signals between a run's end and its launcher's.
#include "runtime/launcher/run/late_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace kintsugi {
namespace {

TEST(LateSignals, AreThoseThatTheRunDidNotTake) {
  LateSignals late;
  EXPECT_FALSE(late.came()) << "nothing is heard before a run is";
  late.Begin({SIGALRM});
  std::raise(SIGTERM);
  late.Take();
  EXPECT_FALSE(late.came());
  std::raise(SIGALRM);
  EXPECT_TRUE(late.came());
  EXPECT_TRUE(late.came()) << "it is not forgotten by being asked for";
}

TEST(LateSignals, OfOneRunAreNotTheNextOnes) {
  LateSignals late;
  late.Begin({});
  std::raise(SIGTERM);
  EXPECT_TRUE(late.came());
  late.End();
  late.Begin({});
  EXPECT_FALSE(late.came());
}

}  // namespace
}  // namespace kintsugi
