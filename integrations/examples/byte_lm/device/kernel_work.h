// What a kernel of byte_lm is: a value with its arguments, whose threads work in phases with a barrier between two.
//
//   static constexpr uint32_t kPhases;          Run is called with 0 .. kPhases - 1
//   struct Shared;                              memory of one block, undefined at first
//   uint64_t Blocks() const;                    each of kBlockThreads threads
//   void Run(uint32_t phase, uint64_t block, uint32_t thread, Shared&) const;
//
// Compiled for the host too, where tests run every thread of a phase before the next (tests/support/fake_gpu). Sums are
// made in an order that depends on sizes alone, and no float is added by an atomic: equal inputs give equal bits.
// Internal to byte_lm/device. REQUIRES of every kernel: Blocks() fits into 31 bits.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/portable.h"

namespace kintsugi::byte_lm::device {

inline constexpr uint32_t kBlockThreads = 256;

struct NoShared {};

// One thread for each element: Derived has At(uint64_t).
template <typename Derived>
struct ElementKernel {
  using Shared = NoShared;
  static constexpr uint32_t kPhases = 1;
  uint64_t count = 0;
  uint64_t Blocks() const { return (count + kBlockThreads - 1) / kBlockThreads; }
  KINTSUGI_HOST_DEVICE void Run(uint32_t, uint64_t block, uint32_t thread, Shared&) const {
    const uint64_t i = block * kBlockThreads + thread;
    if (i < count) static_cast<const Derived*>(this)->At(i);
  }
};

// The sum or the maximum over a block's threads, in three steps with barriers between them: Put by every thread, Fold
// by every thread, Sum or Max by threads that want the result.
template <typename T>
struct BlockFold {
  static constexpr uint32_t kFolds = 16;
  T part[kBlockThreads];
  T folded[kFolds];

  KINTSUGI_HOST_DEVICE void Put(uint32_t thread, T value) { part[thread] = value; }
  KINTSUGI_HOST_DEVICE void FoldSum(uint32_t thread) {
    if (thread >= kFolds) return;
    T sum = 0;
    for (uint32_t i = 0; i < kBlockThreads / kFolds; ++i) sum += part[thread * (kBlockThreads / kFolds) + i];
    folded[thread] = sum;
  }
  KINTSUGI_HOST_DEVICE void FoldMax(uint32_t thread) {
    if (thread >= kFolds) return;
    T largest = part[thread * (kBlockThreads / kFolds)];
    for (uint32_t i = 1; i < kBlockThreads / kFolds; ++i) {
      const T value = part[thread * (kBlockThreads / kFolds) + i];
      largest = value > largest ? value : largest;
    }
    folded[thread] = largest;
  }
  KINTSUGI_HOST_DEVICE T Sum() const {
    T sum = 0;
    for (uint32_t i = 0; i < kFolds; ++i) sum += folded[i];
    return sum;
  }
  KINTSUGI_HOST_DEVICE T Max() const {
    T largest = folded[0];
    for (uint32_t i = 1; i < kFolds; ++i) largest = folded[i] > largest ? folded[i] : largest;
    return largest;
  }
};

}  // namespace kintsugi::byte_lm::device
