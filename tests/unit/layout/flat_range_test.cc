#include "replica/layout/flat_range.h"

#include <gtest/gtest.h>

#include "tests/unit/layout/random_layout.h"

namespace kintsugi::layout {
namespace {

// Every element of the range, in order.
std::vector<Point> PointsOf(const Box& box, FlatRange range) {
  std::vector<Point> points;
  for (int64_t number = range.start; number < range.stop; ++number) points.push_back(Unravel(box, number));
  return points;
}

std::vector<Point> PointsOf(const Box& box) { return PointsOf(box, {0, *Volume(box)}); }

// The smallest box around points, axis by axis.
Box Around(int axes, const std::vector<Point>& points) {
  Box box{.axes = axes, .lo = points.front(), .hi = points.front()};
  for (const Point& point : points)
    for (int axis = 0; axis < axes; ++axis) {
      box.lo[axis] = std::min(box.lo[axis], point[axis]);
      box.hi[axis] = std::max(box.hi[axis], point[axis] + 1);
    }
  return box;
}

// Two boxes that together are one: they agree on all axes but one, on which the second follows the first.
bool AreOneBox(const Box& a, const Box& b) {
  int differing = 0, follows = 0;
  for (int axis = 0; axis < a.axes; ++axis) {
    if (a.lo[axis] == b.lo[axis] && a.hi[axis] == b.hi[axis]) continue;
    ++differing;
    follows += a.hi[axis] == b.lo[axis];
  }
  return differing == 1 && follows == 1;
}

void CheckRange(const Box& box, FlatRange range) {
  const auto points = PointsOf(box, range);
  const FlatBoxes boxes = BoxesOf(box, range);
  ASSERT_LE(boxes.count, std::max(1, 2 * box.axes - 1));
  std::vector<Point> found;
  for (const Box& part : boxes) {
    ASSERT_FALSE(IsEmpty(part));
    for (const Point& point : PointsOf(part)) found.push_back(point);
  }
  // The same elements in the same order: so each box is one run and they follow one another.
  ASSERT_EQ(found, points) << Describe(box) << ' ' << range.start << ".." << range.stop;
  // No more boxes than it takes.
  for (int i = 1; i < boxes.count; ++i) ASSERT_FALSE(AreOneBox(boxes.boxes[i - 1], boxes.boxes[i]));

  const MinimalBox minimal = MinimalBoxOf(box, range);
  if (range.start == range.stop) {
    ASSERT_EQ(boxes.count, 0);
    ASSERT_EQ(minimal.relative, (FlatRange{0, 0}));
    ASSERT_TRUE(box.axes == 0 || IsEmpty(minimal.box));
    return;
  }
  ASSERT_EQ(PointsOf(minimal.box, minimal.relative), points);
  ASSERT_TRUE(Contains(box, minimal.box));
  // Not one box around the range that is a run of the whole is smaller: the first and last element fix it.
  const Box around = Around(box.axes, points);
  for (int axis = 0; axis < box.axes; ++axis) {
    ASSERT_LE(minimal.box.lo[axis], around.lo[axis]);
    ASSERT_GE(minimal.box.hi[axis], around.hi[axis]);
  }
  ASSERT_TRUE(Contains(around, minimal.box)) << Describe(around) << " is smaller than " << Describe(minimal.box);
}

TEST(FlatRange, IsTheBoxesAndTheMinimalBoxThatElementByElementGives) {
  Random random(3);
  for (int axes = 0; axes <= 5; ++axes)
    for (int round = 0; round < 60; ++round) {
      Box box{.axes = axes};
      const Shape shape = RandomShape(axes, 5, 60, random);
      for (int axis = 0; axis < axes; ++axis) {
        box.lo[axis] = static_cast<int64_t>(random.Below(3));
        box.hi[axis] = box.lo[axis] + shape[axis];
      }
      const int64_t volume = *Volume(box);
      for (int64_t start = 0; start <= volume; ++start)
        for (int64_t stop = start; stop <= volume; ++stop) ASSERT_NO_FATAL_FAILURE(CheckRange(box, {start, stop}));
    }
}

TEST(FlatRange, OfEightAxesIsAtMostFifteenBoxes) {
  const Shape shape(8, 3);
  const Box box = WholeBox(shape);
  // From the middle of the first slab to the middle of the last: every axis is cut at both ends.
  const FlatRange range = {Ravel(box, {0, 1, 1, 1, 1, 1, 1, 1}), Ravel(box, {2, 1, 1, 1, 1, 1, 1, 1}) + 1};
  EXPECT_EQ(BoxesOf(box, range).count, 15);
  ASSERT_NO_FATAL_FAILURE(CheckRange(box, range));
}

TEST(MinimalBox, IsThatOfTheReferencesExamples) {
  const Shape two = {4, 3}, three = {2, 2, 3};
  const MinimalBox a = MinimalBoxOf(WholeBox(two), {5, 8});
  EXPECT_EQ(Describe(a.box), "[[1, 3), [0, 3)]");
  EXPECT_EQ(a.relative, (FlatRange{2, 5}));
  const MinimalBox b = MinimalBoxOf(WholeBox(three), {0, 7});
  EXPECT_EQ(Describe(b.box), "[[0, 2), [0, 2), [0, 3)]");
  EXPECT_EQ(b.relative, (FlatRange{0, 7}));
}

// Defect 1: a rule that looks at one previous axis only loses elements from three axes on.
TEST(MinimalBox, LooksAtTheWholePrefix) {
  for (const auto& [shape, ranges] : {std::pair<Shape, int>{{2, 2, 3}, 78}, {{2, 3, 2, 2}, 300}}) {
    const Box box = WholeBox(shape);
    int seen = 0, wrong = 0;
    for (int64_t start = 0; start < *Volume(box); ++start)
      for (int64_t stop = start + 1; stop <= *Volume(box); ++stop) {
        ++seen;
        ASSERT_NO_FATAL_FAILURE(CheckRange(box, {start, stop}));
        // The one-axis rule, to show that these ranges tell the two apart.
        const Point first = Unravel(box, start), last = Unravel(box, stop - 1);
        Box one_axis = box;
        for (int axis = 0; axis < box.axes; ++axis) {
          if (axis > 0 && first[axis - 1] != last[axis - 1]) continue;
          one_axis.lo[axis] = first[axis];
          one_axis.hi[axis] = last[axis] + 1;
        }
        const auto points = PointsOf(box, {start, stop});
        wrong += !std::all_of(points.begin(), points.end(), [&](const Point& p) { return Contains(one_axis, p); });
      }
    EXPECT_EQ(seen, ranges);
    EXPECT_GT(wrong, ranges / 10);
  }
}

TEST(MinimalBox, OfAnEmptyRangeIsEmpty) {
  const Shape shape = {4, 3};
  const MinimalBox minimal = MinimalBoxOf(WholeBox(shape), {0, 0});
  EXPECT_TRUE(IsEmpty(minimal.box));
  EXPECT_EQ(BoxesOf(WholeBox(shape), {12, 12}).count, 0);
}

}  // namespace
}  // namespace kintsugi::layout
