#include "replica/layout/cover.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/layout/random_layout.h"

namespace kintsugi::layout {
namespace {

// How often each element is covered, in row-major order.
std::vector<int> Count(const Box& whole, const std::vector<Box>& boxes) {
  std::vector<int> times(static_cast<size_t>(*Volume(whole)));
  for (const Box& box : boxes)
    for (int64_t i = 0; i < *Volume(box); ++i) ++times[static_cast<size_t>(Ravel(whole, Unravel(box, i)))];
  return times;
}

BoxList ListOf(const Box& whole, const std::vector<Box>& boxes) {
  BoxList list{.axes = whole.axes};
  for (const Box& box : boxes)
    if (!IsEmpty(box)) list.Add(box);
  return list;
}

TEST(Cover, FindsTheFirstElementThatIsNotCoveredOnce) {
  Random random(11);
  int exact = 0, holes = 0, overlaps = 0;
  for (int round = 0; round < 30'000; ++round) {
    const int axes = static_cast<int>(random.Below(7));
    Box whole = WholeBox(RandomShape(axes, 6, 200, random));
    std::vector<Box> boxes = RandomTiling(whole, 1 + static_cast<int>(random.Below(12)), random);
    for (uint64_t changes = random.Below(3); changes > 0 && axes > 0; --changes) {
      Box& box = boxes[random.Below(boxes.size())];
      const size_t axis = random.Below(static_cast<uint64_t>(axes));
      if (random.Chance(0.5) && box.lo[axis] < box.hi[axis])
        ++box.lo[axis];
      else if (box.lo[axis] > 0)
        --box.lo[axis];
    }
    if (random.Chance(0.1)) boxes.push_back(boxes[random.Below(boxes.size())]);
    for (size_t i = boxes.size(); i > 1; --i) std::swap(boxes[i - 1], boxes[random.Below(i)]);
    // Far out, so that numbers do not fit 32 bits.
    const int64_t far = random.Chance(0.3) ? int64_t{1} << 40 : 0;
    for (int axis = 0; axis < axes; ++axis) {
      whole.lo[axis] += far, whole.hi[axis] += far;
      for (Box& box : boxes) box.lo[axis] += far, box.hi[axis] += far;
    }
    const BoxList list = ListOf(whole, boxes);
    const auto times = Count(whole, boxes);
    const auto wrong = std::find_if(times.begin(), times.end(), [](int count) { return count != 1; });
    const auto found = FindMiscover(whole, list);
    ASSERT_EQ(found.has_value(), wrong != times.end()) << round;
    if (!found) {
      ++exact;
      continue;
    }
    ASSERT_EQ(found->at, Unravel(whole, wrong - times.begin()));
    ASSERT_EQ(found->times, *wrong);
    ++(*wrong == 0 ? holes : overlaps);
    if (*wrong != 0) continue;
    // The hole is uncovered all over, and cannot grow along any axis.
    const Box hole = HoleAt(whole, list, found->at);
    ASSERT_EQ(hole.lo, found->at);
    const auto is_free = [&](const Box& box) {
      for (int64_t i = 0; i < *Volume(box); ++i)
        if (times[static_cast<size_t>(Ravel(whole, Unravel(box, i)))] != 0) return false;
      return true;
    };
    ASSERT_TRUE(is_free(hole));
    for (int axis = 0; axis < axes; ++axis) {
      Box larger = hole;
      ASSERT_TRUE(++larger.hi[axis] > whole.hi[axis] || !is_free(larger)) << Describe(hole);
    }
  }
  EXPECT_GT(exact, 5'000);
  EXPECT_GT(holes, 3'000);
  EXPECT_GT(overlaps, 3'000);
}

TEST(Cover, KnowsTensorsOf63BitsAndEightAxes) {
  const Box line{.axes = 1, .hi = {INT64_MAX}};
  BoxList halves{.axes = 1};
  halves.Add(Box{.axes = 1, .lo = {0}, .hi = {int64_t{1} << 62}});
  EXPECT_EQ(FindMiscover(line, halves)->at[0], int64_t{1} << 62);
  halves.Add(Box{.axes = 1, .lo = {int64_t{1} << 62}, .hi = {INT64_MAX}});
  EXPECT_FALSE(FindMiscover(line, halves));

  const Shape shape(8, 3);
  const Box cube = WholeBox(shape);
  Random random(5);
  auto boxes = RandomTiling(cube, 200, random);
  EXPECT_FALSE(FindMiscover(cube, ListOf(cube, boxes)));
  while (IsEmpty(boxes.back())) boxes.pop_back();
  boxes.pop_back();
  EXPECT_TRUE(FindMiscover(cube, ListOf(cube, boxes)));
}

// --- growth --------------------------------------------------------------------------------------------------------

// Boxes of a grid whose cuts are even or not, in row-major order or shuffled.
std::vector<Box> Grid(int axes, int per_axis, bool is_even, Random* shuffle) {
  std::vector<Box> boxes = {Box{.axes = axes}};
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<Box> cut;
    for (const Box& box : boxes) {
      int64_t at = 0;
      for (int i = 0; i < per_axis; ++i) {
        Box cell = box;
        cell.lo[axis] = at;
        cell.hi[axis] = at += is_even ? 4 : 3 + (i * 7 + axis) % 5;
        cut.push_back(cell);
      }
    }
    boxes = cut;
  }
  for (size_t i = boxes.size(); shuffle && i > 1; --i) std::swap(boxes[i - 1], boxes[shuffle->Below(i)]);
  return boxes;
}

Box WholeOf(const std::vector<Box>& boxes) {
  Box whole = boxes.front();
  for (const Box& box : boxes)
    for (int axis = 0; axis < box.axes; ++axis) whole.hi[axis] = std::max(whole.hi[axis], box.hi[axis]);
  for (int axis = 0; axis < whole.axes; ++axis) whole.lo[axis] = 0;
  return whole;
}

std::vector<Box> Irregular(int axes, int count, Random* random) {
  Shape shape(static_cast<size_t>(axes), axes == 1 ? 1 << 22 : axes == 2 ? 1 << 14 : 1 << 9);
  std::vector<Box> boxes = {WholeBox(shape)};
  // Always the box that is next in line, so that none becomes too small to cut.
  for (size_t next = 0; static_cast<int>(boxes.size()) < count; next = next + 1 < boxes.size() ? next + 1 : 0) {
    Box& box = boxes[next];
    const int axis = static_cast<int>(random->Below(static_cast<uint64_t>(axes)));
    if (box.length(axis) < 2) continue;
    Box rest = box;
    const int64_t cut =
        box.lo[axis] + 1 + static_cast<int64_t>(random->Below(static_cast<uint64_t>(box.length(axis) - 1)));
    box.hi[axis] = rest.lo[axis] = cut;
    boxes.push_back(rest);
  }
  return boxes;
}

// All slabs through the whole tensor along all but one axis: whatever prunes on one axis only, is lost here on the
// other.
std::vector<Box> Slabs(int axes, int axis, int count) {
  const Shape shape(static_cast<size_t>(axes), count);
  std::vector<Box> boxes(static_cast<size_t>(count), WholeBox(shape));
  for (int i = 0; i < count; ++i)
    boxes[static_cast<size_t>(i)].lo[axis] = i, boxes[static_cast<size_t>(i)].hi[axis] = i + 1;
  return boxes;
}

// Operations per box and log2 of boxes.
double CostPerLog(const std::vector<Box>& boxes) {
  CoverCost cost;
  const Box whole = WholeOf(boxes);
  EXPECT_FALSE(FindMiscover(whole, ListOf(whole, boxes), &cost));
  const auto n = static_cast<double>(boxes.size());
  return static_cast<double>(cost.rows + cost.comparisons) / (n * std::log2(n));
}

// From n to 16 n boxes the operations per n log n stay what they are: n log n. Pairs would give 16 times as many, an
// exponent of 1.5 four times.
constexpr double kGrowthMax = 1.35;

TEST(CoverGrowth, OfGridsIsNLogN) {
  Random random(2);
  for (const auto& [axes, small, large] : {std::tuple{1, 4096, 65536}, {2, 64, 256}, {3, 16, 40}})
    for (const bool is_even : {true, false})
      for (Random* shuffle : {static_cast<Random*>(nullptr), &random}) {
        const double before = CostPerLog(Grid(axes, small, is_even, shuffle));
        const double after = CostPerLog(Grid(axes, large, is_even, shuffle));
        EXPECT_LT(after, before * kGrowthMax) << axes << " axes, even " << is_even << ": " << before << " to " << after;
        EXPECT_LT(after, 40) << axes;
      }
}

TEST(CoverGrowth, OfIrregularTilingsIsNLogN) {
  Random random(3);
  for (const int axes : {1, 2, 3}) {
    const double before = CostPerLog(Irregular(axes, 4096, &random)),
                 after = CostPerLog(Irregular(axes, 65536, &random));
    EXPECT_LT(after, before * kGrowthMax) << axes << " axes: " << before << " to " << after;
    EXPECT_LT(after, 40) << axes;
  }
}

TEST(CoverGrowth, OfSlabsAlongAnyAxisIsNLogN) {
  for (const int axes : {2, 3})
    for (int axis = 0; axis < axes; ++axis) {
      const double before = CostPerLog(Slabs(axes, axis, 2048)), after = CostPerLog(Slabs(axes, axis, 32768));
      EXPECT_LT(after, before * kGrowthMax) << axes << " axes, along " << axis << ": " << before << " to " << after;
    }
}

// A hole or an overlap is found at the same cost as its absence.
TEST(CoverGrowth, OfWrongTilingsIsNLogN) {
  Random random(4);
  std::vector<double> per_log;
  for (const int count : {4096, 65536}) {
    std::vector<Box> boxes = Irregular(3, count, &random);
    const Box whole = WholeOf(boxes);
    boxes.erase(boxes.begin() + count / 2);
    for (int i = 0; i < count / 8; ++i) boxes.push_back(boxes[static_cast<size_t>(i)]);
    CoverCost cost;
    EXPECT_TRUE(FindMiscover(whole, ListOf(whole, boxes), &cost));
    per_log.push_back(static_cast<double>(cost.rows + cost.comparisons) / (count * std::log2(count)));
  }
  EXPECT_LT(per_log[1], per_log[0] * kGrowthMax);
}

}  // namespace
}  // namespace kintsugi::layout
