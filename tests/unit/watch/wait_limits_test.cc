#include "tools/watch/wait_limits.h"

#include <gtest/gtest.h>

namespace kintsugi::watch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

CollectiveCall CallOf(CollectiveKind kind, uint64_t size = 5) {
  CollectiveCall call;
  call.kind = kind;
  call.size = size;
  return call;
}

const CollectiveCall kSum = CallOf(CollectiveKind::kAllReduce);

TEST(WaitLimits, WhatNobodyHasSeenYetHasALimitOfItsOwn) {
  WaitLimits limits({});
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(10)));
  limits.Learn("0", kSum, milliseconds(3));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(1)));
  EXPECT_EQ(limits.LimitOf("1", kSum), Duration(seconds(10))) << "of another group";
  EXPECT_EQ(limits.LimitOf("0", CallOf(CollectiveKind::kBarrier)), Duration(seconds(10))) << "of another kind";
  EXPECT_EQ(limits.LimitOf("0", CallOf(CollectiveKind::kAllReduce, 6)), Duration(seconds(10))) << "of another size";
}

TEST(WaitLimits, OneLongWaitIsNotTheMeasureOfAll) {
  WaitLimits limits({});
  limits.Learn("0", kSum, seconds(60));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(30))) << "all that is known, within what is asked for";
  for (int i = 0; i < 15; ++i) limits.Learn("0", kSum, milliseconds(400));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(2)));
  limits.Learn("0", kSum, seconds(3));
  limits.Learn("0", kSum, seconds(4));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(15))) << "two are";
  for (int i = 0; i < 16; ++i) limits.Learn("0", kSum, milliseconds(1));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(seconds(1))) << "what was long ago is forgotten";
}

TEST(WaitLimits, NoLimitIsBeyondWhatIsAskedFor) {
  WaitLimits limits({.factor = 2, .least = milliseconds(100), .most = milliseconds(500), .first = seconds(1)});
  limits.Learn("0", kSum, seconds(5));
  EXPECT_EQ(limits.LimitOf("0", kSum), Duration(milliseconds(500)));
  limits.Learn("1", kSum, milliseconds(100));
  EXPECT_EQ(limits.LimitOf("1", kSum), Duration(milliseconds(200)));
}

}  // namespace
}  // namespace kintsugi::watch
