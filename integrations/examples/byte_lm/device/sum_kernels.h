// Kernels that sum over many rows or elements. See kernel_work.h.
#pragma once

#include "integrations/examples/byte_lm/device/kernel_work.h"

namespace kintsugi::byte_lm::device {

// Sums of the columns of x and, where there is a `factor`, of x * factor. A block has 32 columns, each with eight
// threads that share its rows. An output that is null is not wanted.
struct ColumnSumsKernel {
  static constexpr uint32_t kPhases = 2;
  static constexpr uint32_t kColumns = 32, kLanes = kBlockThreads / kColumns;
  struct Shared {
    float sum[kBlockThreads], product[kBlockThreads];
  };
  uint64_t rows, columns;
  const float *x, *factor;
  float *sum, *product_sum;
  uint64_t Blocks() const { return (columns + kColumns - 1) / kColumns; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t block, uint32_t thread, Shared& shared) const {
    const uint64_t column = block * kColumns + thread % kColumns;
    if (phase == 0) {
      float total = 0, product = 0;
      if (column < columns) {
        for (uint64_t row = thread / kColumns; row < rows; row += kLanes) {
          const float value = x[row * columns + column];
          total += value;
          if (factor) product += value * factor[row * columns + column];
        }
      }
      shared.sum[thread] = total;
      shared.product[thread] = product;
    } else if (thread < kColumns && column < columns) {
      float total = 0, product = 0;
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        total += shared.sum[lane * kColumns + thread];
        product += shared.product[lane * kColumns + thread];
      }
      if (sum) sum[column] = total;
      if (product_sum) product_sum[column] = product;
    }
  }
};

// partial[b] = the part of the sum of squares that block b adds up; `blocks` depends on the count alone.
struct SquaresKernel {
  static constexpr uint32_t kPhases = 3;
  static constexpr uint64_t kBlocksMax = 512, kEach = 16;  // elements of a thread before there are more blocks
  using Shared = BlockFold<double>;
  uint64_t count;
  const float* values;
  double* partial;
  static uint64_t BlocksFor(uint64_t count) {
    const uint64_t blocks = (count + kBlockThreads * kEach - 1) / (kBlockThreads * kEach);
    return blocks < 1 ? 1 : blocks < kBlocksMax ? blocks : kBlocksMax;
  }
  uint64_t Blocks() const { return blocks; }
  uint64_t blocks;

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0) {
      double sum = 0;
      for (uint64_t i = block * kBlockThreads + thread; i < count; i += blocks * kBlockThreads) {
        const double value = static_cast<double>(values[i]);
        sum += value * value;
      }
      shared.Put(thread, sum);
    } else if (phase == 1) {
      shared.FoldSum(thread);
    } else if (thread == 0) {
      partial[block] = shared.Sum();
    }
  }
};

// *out = the sum of `count` numbers over `divisor`, by one block.
struct SumKernel {
  static constexpr uint32_t kPhases = 3;
  using Shared = BlockFold<double>;
  uint64_t count;
  double divisor;
  const double* values;
  double* out;
  uint64_t Blocks() const { return 1; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t, uint32_t thread, Shared& shared) const {
    if (phase == 0) {
      double sum = 0;
      for (uint64_t i = thread; i < count; i += kBlockThreads) sum += values[i];
      shared.Put(thread, sum);
    } else if (phase == 1) {
      shared.FoldSum(thread);
    } else if (thread == 0) {
      *out = shared.Sum() / divisor;
    }
  }
};

}  // namespace kintsugi::byte_lm::device
