#include <gtest/gtest.h>

#include "runtime/net/client.h"

namespace kintsugi::net {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, DoublesUpToItsMaximum) {
  EXPECT_EQ(BackoffDelay(0, milliseconds(10), milliseconds(500), 0), milliseconds(10));
  EXPECT_EQ(BackoffDelay(3, milliseconds(10), milliseconds(500), 0), milliseconds(80));
  EXPECT_EQ(BackoffDelay(60, milliseconds(10), milliseconds(500), 0), milliseconds(500));
}

TEST(Backoff, TakesOffAtMostHalf) {
  for (double unit : {0.0, 0.25, 0.999}) {
    const Duration delay = BackoffDelay(9, milliseconds(10), milliseconds(500), unit);
    EXPECT_LE(delay, milliseconds(500));
    EXPECT_GE(delay, milliseconds(250));
  }
}

}  // namespace
}  // namespace kintsugi::net
