#include "replica/layout/box.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/layout/random_layout.h"

namespace kintsugi::layout {
namespace {

Box RandomBox(int axes, Random& random) {
  Box box{.axes = axes};
  for (int axis = 0; axis < axes; ++axis) {
    box.lo[axis] = static_cast<int64_t>(random.Below(4));
    box.hi[axis] = box.lo[axis] + static_cast<int64_t>(random.Below(4));
  }
  return box;
}

std::set<Point> PointsOf(const Box& box) {
  std::set<Point> points;
  Point at{};
  const auto walk = [&](auto&& self, int axis) -> void {
    if (axis == box.axes) {
      points.insert(at);
      return;
    }
    for (at[axis] = box.lo[axis]; at[axis] < box.hi[axis]; ++at[axis]) self(self, axis + 1);
    at[axis] = 0;
  };
  walk(walk, 0);
  return points;
}

TEST(Box, HasTheElementsThatItsIntervalsName) {
  Random random(1);
  for (int round = 0; round < 3'000; ++round) {
    const int axes = static_cast<int>(random.Below(5));
    const Box a = RandomBox(axes, random), b = RandomBox(axes, random);
    const auto in_a = PointsOf(a), in_b = PointsOf(b);
    ASSERT_EQ(*Volume(a), static_cast<int64_t>(in_a.size()));
    ASSERT_EQ(IsEmpty(a), in_a.empty());
    std::set<Point> both;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::inserter(both, both.end()));
    ASSERT_EQ(PointsOf(Intersect(a, b)), both) << Describe(a) << Describe(b);
    for (const Point& point : in_a) ASSERT_EQ(Contains(b, point), in_b.contains(point));
    ASSERT_TRUE(in_b.empty() || in_a.empty() || Contains(a, b) == (both.size() == in_b.size()));
    // std::set orders points row-major.
    int64_t number = 0;
    for (const Point& point : in_a) {
      ASSERT_EQ(Ravel(a, point), number);
      ASSERT_EQ(Unravel(a, number), point);
      ++number;
    }
  }
}

TEST(Box, OfNoAxesIsOneElement) {
  const Box scalar = WholeBox({});
  EXPECT_FALSE(IsEmpty(scalar));
  EXPECT_EQ(Volume(scalar), 1);
  EXPECT_TRUE(Contains(scalar, scalar));
  EXPECT_EQ(Intersect(scalar, scalar), scalar);
  EXPECT_EQ(Ravel(scalar, {}), 0);
  EXPECT_EQ(Describe(scalar), "[]");
}

TEST(Box, CountsUpTo63BitsAndSaysWhenItCannot) {
  const Shape largest = {INT64_MAX}, too_large = {INT64_MAX, 2}, empty = {INT64_MAX, INT64_MAX, 0};
  EXPECT_EQ(Volume(WholeBox(largest)), INT64_MAX);
  EXPECT_EQ(Volume(WholeBox(too_large)), std::nullopt);
  EXPECT_EQ(Volume(WholeBox(empty)), 0);
  const Shape eight = {2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(Volume(WholeBox(eight)), 362880);
  EXPECT_EQ(Unravel(WholeBox(eight), 362879), (Point{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Box, IsShownAsIntervals) {
  const Shape offset = {0, 4}, shape = {3, 4};
  EXPECT_EQ(Describe(BoxAt(offset, shape)), "[[0, 3), [4, 8)]");
}

}  // namespace
}  // namespace kintsugi::layout
