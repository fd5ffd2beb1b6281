#include "runtime/device/device_pool.h"

#include <gtest/gtest.h>

namespace kintsugi::device {
namespace {

TEST(DevicePool, KeepsARankOnItsDeviceWhileThatIsHealthy) {
  DevicePool pool(4, 4);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(pool.Assign(rank), rank);
  EXPECT_EQ(pool.Assign(2), 2);
  EXPECT_EQ(pool.RanksOn(3), std::vector<int>{3});
}

TEST(DevicePool, GivesADeviceThatNobodyUsesForOneThatIsExcluded) {
  DevicePool pool(5, 4);
  EXPECT_TRUE(pool.Exclude(1, "Xid 95"));
  EXPECT_FALSE(pool.Exclude(1, "again"));
  EXPECT_EQ(pool.Assign(1), 4);
  EXPECT_EQ(pool.Assign(1), 4);
  EXPECT_TRUE(pool.Exclude(4, "Xid 79"));
  EXPECT_EQ(pool.Assign(1), std::nullopt) << "ranks that have a device each do not share one";
  EXPECT_EQ(pool.Assign(0), 0);
  EXPECT_EQ(pool.Excluded(), "device 1 (Xid 95), device 4 (Xid 79)");
}

TEST(DevicePool, SharesWhatIsLeftWhereRanksShareAnyway) {
  DevicePool pool(2, 4);
  EXPECT_EQ(pool.DeviceOf(3), 1);
  EXPECT_TRUE(pool.Exclude(0, "Xid 119"));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(pool.Assign(rank), 1);
  EXPECT_TRUE(pool.Exclude(1, "Xid 119"));
  EXPECT_EQ(pool.Assign(0), std::nullopt);
}

TEST(DevicePool, KnowsNoOtherDevices) {
  DevicePool pool(2, 2);
  EXPECT_FALSE(pool.Exclude(-1, "?"));
  EXPECT_FALSE(pool.Exclude(2, "?"));
}

}  // namespace
}  // namespace kintsugi::device
