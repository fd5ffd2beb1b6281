// CUDA_VISIBLE_DEVICES as CUDA reads it, and as a rank is given it that moves.
#include "runtime/device/visible_devices.h"

#include <gtest/gtest.h>

namespace kintsugi::device {
namespace {

int Known(const std::string& name) { return name == "GPU-a" ? 3 : -1; }
VisibleDevices Of(const char* said, std::optional<int> count = 8) {
  return {said ? std::optional<std::string>(said) : std::nullopt, count, Known};
}

TEST(VisibleDevices, AreAllWhereNothingIsSaid) {
  const VisibleDevices all = Of(nullptr, 3);
  EXPECT_EQ(all.size(), 3);
  EXPECT_EQ(all.PositionOf(2), 2);
  EXPECT_EQ(all.PositionOf(3), -1);
  EXPECT_EQ(Of(nullptr, std::nullopt).size(), 0);
}

TEST(VisibleDevices, AreThoseThatAreNamedInTheirOrder) {
  const VisibleDevices some = Of("5, 4,GPU-a");
  EXPECT_EQ(some.size(), 3);
  EXPECT_EQ(some.PositionOf(5), 0);
  EXPECT_EQ(some.PositionOf(4), 1);
  EXPECT_EQ(some.PositionOf(3), 2);
  EXPECT_EQ(some.PositionOf(0), -1);
}

TEST(VisibleDevices, EndAtTheFirstThatIsNone) {
  EXPECT_EQ(Of("0,1,8,2").size(), 2);
  EXPECT_EQ(Of("0,-1,1").size(), 1);
  EXPECT_EQ(Of("0,x,1").size(), 1);
  EXPECT_EQ(Of("").size(), 0);
  EXPECT_EQ(Of("NoDevFiles").size(), 0);
  EXPECT_EQ(Of("9", std::nullopt).size(), 1);  // nobody counted
}

TEST(VisibleDevices, ANameThatNvmlDoesNotKnowHasAPlaceAndNoNumber) {
  const VisibleDevices some = Of("GPU-other,MIG-x,1");
  EXPECT_EQ(some.size(), 3);
  EXPECT_EQ(some.PositionOf(-1), -1);
  EXPECT_EQ(some.PositionOf(1), 2);
}

TEST(VisibleDevices, AProcessFindsItsDeviceWhereItLooks) {
  EXPECT_EQ(Of("5,4,GPU-a").Swapped(2, 0), "GPU-a,4,5");
  EXPECT_EQ(Of(nullptr, 4).Swapped(3, 1), "0,3,2,1");
  EXPECT_EQ(Of(nullptr, 2).Swapped(1, 1), "0,1");
}

}  // namespace
}  // namespace kintsugi::device
