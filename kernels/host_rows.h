// RegionRows: the rows of a region, copied past the caches. Internal to kernels.
#pragma once

#include <cstdint>

namespace kintsugi::internal {

// From this size on a region's destination is written past the caches, if its rows are long enough for that.
inline constexpr uint64_t kStreamRegionBytes = 4 << 20;
inline constexpr uint64_t kStreamRowBytes = 512;

struct RegionRows {
  uint64_t row_bytes = 0;
  int64_t count = 0;
  int64_t to_stride = 0;  // bytes from one row to the next
  int64_t from_stride = 0;
};

void StreamRowsAvx2(uint8_t* to, const uint8_t* from, const RegionRows& rows);

// Rows of 16 to 256 bytes, a power of two, that fill whole lines: they lie one after another in the destination, or each
// begins a line there and has whole ones.
bool FillsLines(const uint8_t* to, const RegionRows& rows);
// REQUIRES: FillsLines(to, rows).
void StreamShortRowsAvx2(uint8_t* to, const uint8_t* from, const RegionRows& rows);
// Makes the stores of all rows visible in order.
void StreamFenceAvx2();

}  // namespace kintsugi::internal
