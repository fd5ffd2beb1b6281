// BoxIndex against looking at every box.
#include "replica/plan/box_index.h"

#include <gtest/gtest.h>

#include "runtime/base/random.h"

namespace kintsugi::plan {
namespace {

using layout::Box;

Box RandomBox(int axes, int64_t length, Random& random) {
  Box box;
  box.axes = axes;
  for (int axis = 0; axis < axes; ++axis) {
    box.lo[axis] = static_cast<int64_t>(random.Below(static_cast<uint64_t>(length)));
    box.hi[axis] = box.lo[axis] + 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(length - box.lo[axis])));
  }
  return box;
}

// Intervals with gaps and uneven lengths on each axis, and their product in row-major order.
std::vector<Box> RandomGrid(int axes, Random& random) {
  std::vector<Box> boxes(1);
  boxes[0].axes = axes;
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<Box> product;
    std::vector<std::pair<int64_t, int64_t>> cuts;
    int64_t at = 0;
    for (uint64_t i = 1 + random.Below(5); i > 0; --i) {
      at += static_cast<int64_t>(random.Below(2));
      const int64_t end = at + 1 + static_cast<int64_t>(random.Below(4));
      cuts.emplace_back(at, end);
      at = end;
    }
    for (const Box& box : boxes)
      for (const auto& [lo, hi] : cuts) {
        product.push_back(box);
        product.back().lo[axis] = lo;
        product.back().hi[axis] = hi;
      }
    boxes = product;
  }
  return boxes;
}

TEST(BoxIndex, FindsExactlyTheBoxesThatMeet) {
  Random random(3);
  int grids = 0;
  for (int i = 0; i < 2000; ++i) {
    const int axes = static_cast<int>(random.Below(5));
    std::vector<Box> boxes;
    const bool is_grid = random.Chance(0.5);
    if (is_grid) boxes = RandomGrid(axes, random);
    for (uint64_t count = random.Below(60); !is_grid && count > 0; --count)
      boxes.push_back(RandomBox(axes, 12, random));
    std::vector<int64_t> coordinates;
    for (const Box& box : boxes) {
      coordinates.insert(coordinates.end(), box.lo.begin(), box.lo.begin() + axes);
      coordinates.insert(coordinates.end(), box.hi.begin(), box.hi.begin() + axes);
    }
    BoxIndex index;
    index.Build(axes, coordinates, boxes.size());
    ASSERT_TRUE(index.is_grid() || !is_grid);
    grids += is_grid;
    for (int query = 0; query < 20; ++query) {
      const Box box = RandomBox(axes, 24, random);
      std::vector<uint32_t> found, wanted;
      uint64_t steps = 0;
      index.Find(box, &found, &steps);
      for (uint32_t k = 0; k < boxes.size(); ++k)
        if (!IsEmpty(Intersect(box, boxes[k]))) wanted.push_back(k);
      ASSERT_EQ(found, wanted);
    }
  }
  EXPECT_GT(grids, 500);
}

}  // namespace
}  // namespace kintsugi::plan
