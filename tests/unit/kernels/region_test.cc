// Copies of regions against element by element.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/host_region.h"
#include "runtime/base/random.h"

namespace kintsugi {
namespace {

constexpr uint8_t kGuard = 0xA5;

int64_t Between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random.Below(static_cast<uint64_t>(high - low + 1)));
}

// Strides of a memory in which the region's elements are distinct: any order of axes, any gaps, any sign.
struct Layout {
  RegionAxes stride{};
  int64_t origin = 0;  // of the element with all coordinates 0
  int64_t size_bytes = 0;
};

Layout RandomStrides(int axes, const RegionAxes& length, int64_t element_bytes, Random& random) {
  std::vector<int> order(static_cast<size_t>(axes));
  std::iota(order.begin(), order.end(), 0);
  if (random.Chance(0.5))
    for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.Below(k)]);
  const bool has_gaps = random.Chance(0.5), has_signs = random.Chance(0.2);
  Layout layout;
  int64_t step = element_bytes;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    if (has_gaps && random.Chance(0.4)) step += Between(random, 0, 3 * element_bytes);
    layout.stride[axis] = step;
    const int64_t extent = step * std::max<int64_t>(1, length[axis]);
    if (has_signs && random.Chance(0.5)) {
      layout.origin += extent - step;
      layout.stride[axis] = -step;
    }
    step = extent;
  }
  layout.size_bytes = step;
  return layout;
}

std::vector<uint8_t> RandomBytes(int64_t size, Random& random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

void SlowCopy(uint8_t* to, const uint8_t* from, const RegionPair& region, int axis, int64_t element_bytes) {
  if (axis == region.axes) {
    for (int64_t i = 0; i < element_bytes; ++i) to[i] = from[i];
    return;
  }
  for (int64_t i = 0; i < region.length[axis]; ++i)
    SlowCopy(to + i * region.to_stride[axis], from + i * region.from_stride[axis], region, axis + 1, element_bytes);
}

RegionAxes RandomLengths(int axes, int64_t elements_max, Random& random) {
  RegionAxes length{};
  int64_t elements = 1;
  for (int axis = 0; axis < axes; ++axis) {
    const int64_t room = std::max<int64_t>(1, elements_max / elements);
    length[axis] = random.Chance(0.02) ? 0 : Between(random, 1, std::min<int64_t>(random.Chance(0.2) ? 100 : 5, room));
    elements *= std::max<int64_t>(1, length[axis]);
  }
  return length;
}

TEST(CopyRegion, IsElementByElementForAnyStridesAndTouchesNothingElse) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    SCOPED_TRACE(round);
    RegionPair region;
    region.axes = static_cast<int>(random.Below(kRegionAxesMax + 1));
    region.length = RandomLengths(region.axes, 2000, random);
    const int64_t element_bytes = int64_t{1} << random.Below(5);
    const Layout to = RandomStrides(region.axes, region.length, element_bytes, random);
    const Layout from = RandomStrides(region.axes, region.length, element_bytes, random);
    region.to_stride = to.stride;
    region.from_stride = from.stride;
    const auto source = RandomBytes(from.size_bytes, random);
    std::vector<uint8_t> expected(static_cast<size_t>(to.size_bytes) + 64, kGuard), found = expected;
    SlowCopy(expected.data() + 32 + to.origin, source.data() + from.origin, region, 0, element_bytes);
    CopyRegion(found.data() + 32 + to.origin, source.data() + from.origin, region,
               static_cast<uint64_t>(element_bytes));
    ASSERT_TRUE(found == expected);
  }
}

TEST(PackRegion, AndUnpackAreElementByElementInRowMajorOrder) {
  Random random(2);
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(round);
    Region region;
    region.axes = static_cast<int>(random.Below(kRegionAxesMax + 1));
    region.length = RandomLengths(region.axes, 1000, random);
    const int64_t element_bytes = int64_t{1} << random.Below(5);
    const Layout layout = RandomStrides(region.axes, region.length, element_bytes, random);
    region.stride = layout.stride;
    const auto memory = RandomBytes(layout.size_bytes, random);
    RegionPair slow{.axes = region.axes, .length = region.length, .from_stride = layout.stride};
    slow.to_stride = DenseStrides(region.axes, region.length, static_cast<uint64_t>(element_bytes));
    int64_t bytes = element_bytes;
    for (int axis = 0; axis < region.axes; ++axis) bytes *= region.length[axis];
    std::vector<uint8_t> packed(static_cast<size_t>(bytes), kGuard), expected = packed;
    SlowCopy(expected.data(), memory.data() + layout.origin, slow, 0, element_bytes);
    PackRegion(packed.data(), memory.data() + layout.origin, region, static_cast<uint64_t>(element_bytes));
    ASSERT_TRUE(packed == expected);
    std::vector<uint8_t> back(memory.size(), kGuard), slow_back = back;
    std::swap(slow.to_stride, slow.from_stride);
    SlowCopy(slow_back.data() + layout.origin, packed.data(), slow, 0, element_bytes);
    UnpackRegion(back.data() + layout.origin, packed.data(), region, static_cast<uint64_t>(element_bytes));
    ASSERT_TRUE(back == slow_back);
  }
}

// Large enough to go past the caches; rows of odd lengths at odd addresses.
TEST(CopyRegion, CopiesLargeRegionsOfAnyAlignment) {
  Random random(3);
  for (const int64_t row : {512, 515, 4096, 4097, 5000, 70001}) {
    const int64_t rows = (9 << 20) / row, pitch = row + Between(random, 0, 100);
    const auto source = RandomBytes(rows * pitch + 64, random);
    const int64_t from_at = Between(random, 0, 63), to_at = Between(random, 0, 63);
    Region region{.axes = 2, .length = {rows, row}, .stride = {pitch, 1}};
    std::vector<uint8_t> packed(static_cast<size_t>(rows * row) + 128, kGuard), back(source.size() + 128, kGuard);
    PackRegion(packed.data() + to_at, source.data() + from_at, region, 1);
    UnpackRegion(back.data() + from_at, packed.data() + to_at, region, 1);
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(
          std::memcmp(packed.data() + to_at + r * row, source.data() + from_at + r * pitch, static_cast<size_t>(row)),
          0);
      ASSERT_EQ(
          std::memcmp(back.data() + from_at + r * pitch, source.data() + from_at + r * pitch, static_cast<size_t>(row)),
          0);
      for (int64_t gap = row; gap < pitch; ++gap)
        ASSERT_EQ(back[static_cast<size_t>(from_at + r * pitch + gap)], kGuard);
    }
    ASSERT_EQ(packed[static_cast<size_t>(to_at + rows * row)], kGuard);
    for (int64_t before = 0; before < to_at; ++before) ASSERT_EQ(packed[static_cast<size_t>(before)], kGuard);
    for (int64_t before = 0; before < from_at; ++before) ASSERT_EQ(back[static_cast<size_t>(before)], kGuard);
  }
}

// At `at` past the beginning of a cache line; with a guard behind.
class Memory {
 public:
  Memory(int64_t size, int64_t at) : size_(size), bytes_(static_cast<size_t>(size) + 192, kGuard) {
    first_ = bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64 + at;
  }
  uint8_t* first() { return first_; }
  bool IsGuarded() const { return std::all_of<const uint8_t*>(first_ + size_, bytes_.data() + bytes_.size(),
                                       [](uint8_t byte) { return byte == kGuard; }); }

 private:
  int64_t size_;
  std::vector<uint8_t> bytes_;
  uint8_t* first_;
};

// Short rows have ways of their own, by their length and by where their lines begin; past the caches and through them.
TEST(CopyRegion, CopiesShortRowsWhereverTheyBegin) {
  Random random(4);
  for (const int64_t total : {int64_t{100000}, int64_t{4} << 20})
    for (const int64_t row : {8, 16, 24, 32, 64, 96, 128, 192, 256})
      for (const int64_t at : {0, 4, 16, 48})
        for (const int64_t gap : {int64_t{64}, row, int64_t{12}}) {
          if (total > 1 << 20 && at != 4 && at != 0) continue;
          const int64_t rows = total / row, pitch = row + gap;
          const auto source = RandomBytes(rows * pitch, random);
          const Region region{.axes = 2, .length = {rows, row / 4}, .stride = {pitch, 4}};
          Memory packed(rows * row, at), back(rows * pitch, at);
          PackRegion(packed.first(), source.data(), region, 4);
          UnpackRegion(back.first(), packed.first(), region, 4);
          for (int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(std::memcmp(packed.first() + r * row, source.data() + r * pitch, static_cast<size_t>(row)), 0);
            ASSERT_EQ(std::memcmp(back.first() + r * pitch, source.data() + r * pitch, static_cast<size_t>(row)), 0);
            const uint8_t* const end = back.first() + (r + 1) * pitch;
            ASSERT_TRUE(std::all_of(end - gap, end, [](uint8_t byte) { return byte == kGuard; }));
          }
          ASSERT_TRUE(packed.IsGuarded() && back.IsGuarded());
        }
}

TEST(CopyRegion, TransposesPlanesOfAnySizeAndAlignment) {
  Random random(5);
  for (int round = 0; round < 120; ++round) {
    const int64_t bytes = int64_t{1} << Between(random, 0, 4);
    const bool is_large = random.Chance(0.2);
    const int64_t rows = is_large ? 1024 + Between(random, 0, 40) : Between(random, 1, 300);
    const int64_t columns = is_large ? (6 << 20) / bytes / rows / 32 * 32 : Between(random, 1, 300);
    const int64_t pitch = (rows + (random.Chance(0.5) ? 0 : Between(random, 0, 9))) * bytes;  // from a column to the next
    const bool is_upwards = random.Chance(0.7);
    const auto source = RandomBytes(columns * pitch, random);
    Memory to(rows * columns * bytes, random.Chance(0.5) ? 0 : Between(random, 0, 63));
    RegionPair region{.axes = 2,
                      .length = {rows, columns},
                      .to_stride = {columns * bytes, bytes},
                      .from_stride = {bytes, pitch}};
    const uint8_t* from = source.data();
    if (!is_upwards) from += (columns - 1) * pitch, region.from_stride[1] = -pitch;
    CopyRegion(to.first(), from, region, static_cast<uint64_t>(bytes));
    for (int64_t y = 0; y < rows; ++y)
      for (int64_t x = 0; x < columns; ++x)
        ASSERT_EQ(std::memcmp(to.first() + (y * columns + x) * bytes, from + x * region.from_stride[1] + y * bytes,
                              static_cast<size_t>(bytes)),
                  0)
            << rows << " x " << columns << " of " << bytes << ": " << y << ", " << x;
    ASSERT_TRUE(to.IsGuarded());
  }
}

TEST(Coalesce, JoinsWhatIsContiguousInBoth) {
  // The middle of a [4, 6, 5] tensor packed: rows of 5 whole, two of six planes' rows.
  const RegionPair part{.axes = 3, .length = {4, 2, 5}, .to_stride = {40, 20, 4}, .from_stride = {120, 20, 4}};
  const RegionPair two = Coalesce(part);
  EXPECT_EQ(two.axes, 2);
  EXPECT_EQ(two.length[0], 4);
  EXPECT_EQ(two.length[1], 10);
  const RegionPair whole{.axes = 3, .length = {4, 6, 5}, .to_stride = {120, 20, 4}, .from_stride = {120, 20, 4}};
  EXPECT_EQ(Coalesce(whole).axes, 1);
  EXPECT_EQ(Coalesce(whole).length[0], 120);
  const RegionPair ones{.axes = 3, .length = {1, 1, 1}, .to_stride = {9, 8, 7}, .from_stride = {1, 2, 3}};
  EXPECT_EQ(Coalesce(ones).axes, 0);
  const RegionPair transposed{.axes = 2, .length = {3, 2}, .to_stride = {4, 12}, .from_stride = {8, 4}};
  EXPECT_EQ(Coalesce(transposed).axes, 2);
  EXPECT_EQ(Coalesce(transposed).length[1], 3);
  const RegionPair none{.axes = 2, .length = {3, 0}, .to_stride = {4, 4}, .from_stride = {4, 4}};
  EXPECT_EQ(Coalesce(none).axes, 1);
  EXPECT_EQ(Coalesce(none).length[0], 0);
}

}  // namespace
}  // namespace kintsugi
