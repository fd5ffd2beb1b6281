#include "kernels/host_region.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/host_rows.h"
#include "kernels/host_transpose.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using internal::Plane;
using internal::RegionRows;

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

// Of a length that the compiler knows: a call for each would cost more than the copy.
template <size_t kBytes>
void CopyShortRows(uint8_t* to, const uint8_t* from, const RegionRows& rows) {
  for (int64_t row = 0; row < rows.count; ++row, to += rows.to_stride, from += rows.from_stride)
    std::memcpy(to, from, kBytes);
}

void CopyRows(uint8_t* to, const uint8_t* from, const RegionRows& rows, [[maybe_unused]] bool past_caches) {
#if defined(__x86_64__)
  if (past_caches && rows.row_bytes >= internal::kStreamRowBytes) return internal::StreamRowsAvx2(to, from, rows);
  if (past_caches && internal::FillsLines(to, rows)) return internal::StreamShortRowsAvx2(to, from, rows);
#endif
  switch (rows.row_bytes) {
    case 8:
      return CopyShortRows<8>(to, from, rows);
    case 16:
      return CopyShortRows<16>(to, from, rows);
    case 32:
      return CopyShortRows<32>(to, from, rows);
    case 64:
      return CopyShortRows<64>(to, from, rows);
    case 128:
      return CopyShortRows<128>(to, from, rows);
    case 256:
      return CopyShortRows<256>(to, from, rows);
  }
  for (int64_t row = 0; row < rows.count; ++row)
    std::memcpy(to + row * rows.to_stride, from + row * rows.from_stride, rows.row_bytes);
}

template <typename Word>
void CopyElements(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, sizeof(Word));
}

// Elements along a side of a square that goes through the first cache: two lines, so that lines are read and written
// whole.
template <typename Word>
constexpr int64_t kSide = std::max<int64_t>(16, 128 / static_cast<int64_t>(sizeof(Word)));

// A square from a source that is contiguous along y to a destination that is contiguous along x: first to a dense one,
// since rows that lie a power of two apart would drive one another out of the cache.
template <typename Word>
void TransposeSquare(uint8_t* to, int64_t to_stride_y, const uint8_t* from, int64_t from_stride_x, int64_t rows,
                     int64_t columns) {
  Word square[kSide<Word>][kSide<Word>];
  for (int64_t x = 0; x < columns; ++x)
    std::memcpy(square[x], from + x * from_stride_x, static_cast<size_t>(rows) * sizeof(Word));
  for (int64_t y = 0; y < rows; ++y) {
    Word row[kSide<Word>];
    for (int64_t x = 0; x < columns; ++x) row[x] = square[x][y];
    std::memcpy(to + y * to_stride_y, row, static_cast<size_t>(columns) * sizeof(Word));
  }
}

// The last two axes, neither of which is contiguous in both memories, square by square.
template <typename Word>
void CopyPlane(uint8_t* to, const uint8_t* from, const RegionPair& region, [[maybe_unused]] bool past_caches) {
  constexpr auto kStep = static_cast<int64_t>(sizeof(Word));
  const int y = region.axes - 2, x = region.axes - 1;
  const bool is_transpose = region.to_stride[x] == kStep && region.from_stride[y] == kStep;
#if defined(__x86_64__)
  const Plane plane{region.length[y], region.length[x], region.to_stride[y], region.from_stride[x]};
  if (is_transpose && HasAvx2() && internal::CanTranspose(sizeof(Word), plane))
    return internal::TransposePlaneAvx2(to, from, plane, sizeof(Word), past_caches);
#endif
  for (int64_t row = 0; row < region.length[y]; row += kSide<Word>)
    for (int64_t column = 0; column < region.length[x]; column += kSide<Word>) {
      const int64_t rows = std::min(kSide<Word>, region.length[y] - row);
      const int64_t columns = std::min(kSide<Word>, region.length[x] - column);
      uint8_t* t = to + row * region.to_stride[y] + column * region.to_stride[x];
      const uint8_t* f = from + row * region.from_stride[y] + column * region.from_stride[x];
      if (is_transpose)
        TransposeSquare<Word>(t, region.to_stride[y], f, region.from_stride[x], rows, columns);
      else
        for (int64_t r = 0; r < rows; ++r)
          CopyElements<Word>(t + r * region.to_stride[y], region.to_stride[x], f + r * region.from_stride[y],
                             region.from_stride[x], columns);
    }
}

uint64_t BytesOf(const RegionPair& region, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int axis = 0; axis < region.axes; ++axis) bytes *= static_cast<uint64_t>(region.length[axis]);
  return bytes;
}

// Calls `body` with both addresses of each element of the first `axes` axes.
template <typename Body>
void ForEach(uint8_t* to, const uint8_t* from, const RegionPair& region, int axes, const Body& body) {
  RegionAxes at{};
  for (;;) {
    body(to, from);
    int axis = axes - 1;
    for (; axis >= 0; --axis) {
      to += region.to_stride[axis];
      from += region.from_stride[axis];
      if (++at[axis] < region.length[axis]) break;
      to -= at[axis] * region.to_stride[axis];
      from -= at[axis] * region.from_stride[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <typename Word>
void CopyWords(uint8_t* to, const uint8_t* from, const RegionPair& region) {
  if (region.axes < 2)
    return CopyElements<Word>(to, region.to_stride[0], from, region.from_stride[0], region.length[0]);
  const bool past_caches = HasAvx2() && BytesOf(region, sizeof(Word)) >= internal::kStreamRegionBytes;
  ForEach(to, from, region, region.axes - 2,
          [&](uint8_t* t, const uint8_t* f) { CopyPlane<Word>(t, f, region, past_caches); });
#if defined(__x86_64__)
  if (past_caches) internal::StreamFenceAvx2();
#endif
}

struct Word16 {
  uint64_t words[2];
};

void CopyScattered(uint8_t* to, const uint8_t* from, const RegionPair& region, uint64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return CopyWords<uint8_t>(to, from, region);
    case 2:
      return CopyWords<uint16_t>(to, from, region);
    case 4:
      return CopyWords<uint32_t>(to, from, region);
    case 8:
      return CopyWords<uint64_t>(to, from, region);
    default:
      return CopyWords<Word16>(to, from, region);
  }
}

// The last axis is contiguous in both memories: rows.
void CopyContiguous(uint8_t* to, const uint8_t* from, const RegionPair& region, uint64_t element_bytes) {
  RegionRows rows{static_cast<uint64_t>(region.length[region.axes - 1]) * element_bytes, 1, 0, 0};
  if (region.axes >= 2) {
    rows.count = region.length[region.axes - 2];
    rows.to_stride = region.to_stride[region.axes - 2];
    rows.from_stride = region.from_stride[region.axes - 2];
  }
  const bool past_caches = HasAvx2() && BytesOf(region, element_bytes) >= internal::kStreamRegionBytes;
  ForEach(to, from, region, std::max(0, region.axes - 2),
          [&](uint8_t* t, const uint8_t* f) { CopyRows(t, f, rows, past_caches); });
#if defined(__x86_64__)
  if (past_caches) internal::StreamFenceAvx2();
#endif
}

}  // namespace

RegionAxes DenseStrides(int axes, const RegionAxes& length, uint64_t element_bytes) {
  RegionAxes stride{};
  auto step = static_cast<int64_t>(element_bytes);
  for (int axis = axes - 1; axis >= 0; --axis) {
    stride[axis] = step;
    step *= length[axis];
  }
  return stride;
}

RegionPair Coalesce(const RegionPair& region) {
  RegionPair result;
  std::array<int, kRegionAxesMax> order{};
  for (int axis = 0; axis < region.axes; ++axis) {
    if (region.length[axis] == 0) return {.axes = 1};
    if (region.length[axis] > 1) order[result.axes++] = axis;
  }
  std::stable_sort(order.begin(), order.begin() + result.axes,
                   [&](int a, int b) { return std::abs(region.to_stride[a]) > std::abs(region.to_stride[b]); });
  int last = -1;
  for (int i = 0; i < result.axes; ++i) {
    const int axis = order[i];
    const int64_t length = region.length[axis], to = region.to_stride[axis], from = region.from_stride[axis];
    if (last >= 0 && result.to_stride[last] == to * length && result.from_stride[last] == from * length)
      result.length[last] *= length;
    else
      result.length[++last] = length;
    result.to_stride[last] = to;
    result.from_stride[last] = from;
  }
  result.axes = last + 1;
  return result;
}

void CopyRegion(void* to, const void* from, const RegionPair& region, uint64_t element_bytes) {
  KINTSUGI_CHECK(region.axes >= 0 && region.axes <= kRegionAxesMax, "a region has 0 to 8 axes");
  KINTSUGI_CHECK(element_bytes > 0 && element_bytes <= 16 && (element_bytes & (element_bytes - 1)) == 0,
                 "an element has 1, 2, 4, 8 or 16 bytes");
  auto* target = static_cast<uint8_t*>(to);
  auto* source = static_cast<const uint8_t*>(from);
  const RegionPair simple = Coalesce(region);
  if (simple.axes == 0) {
    std::memcpy(target, source, element_bytes);
    return;
  }
  if (simple.length[0] == 0) return;
  const int last = simple.axes - 1;
  const auto step = static_cast<int64_t>(element_bytes);
  if (simple.to_stride[last] == step && simple.from_stride[last] == step)
    return CopyContiguous(target, source, simple, element_bytes);
  RegionPair scattered = simple;
  // The axis that is contiguous in the source comes next to the one that is in the destination.
  for (int axis = 0; axis < last - 1; ++axis)
    if (std::abs(simple.from_stride[axis]) < std::abs(scattered.from_stride[last - 1])) {
      std::swap(scattered.length[axis], scattered.length[last - 1]);
      std::swap(scattered.to_stride[axis], scattered.to_stride[last - 1]);
      std::swap(scattered.from_stride[axis], scattered.from_stride[last - 1]);
    }
  CopyScattered(target, source, scattered, element_bytes);
}

void PackRegion(void* to, const void* from, const Region& region, uint64_t element_bytes) {
  CopyRegion(to, from,
             {.axes = region.axes,
              .length = region.length,
              .to_stride = DenseStrides(region.axes, region.length, element_bytes),
              .from_stride = region.stride},
             element_bytes);
}

void UnpackRegion(void* to, const void* from, const Region& region, uint64_t element_bytes) {
  CopyRegion(to, from,
             {.axes = region.axes,
              .length = region.length,
              .to_stride = region.stride,
              .from_stride = DenseStrides(region.axes, region.length, element_bytes)},
             element_bytes);
}

}  // namespace kintsugi
