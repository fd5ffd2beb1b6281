// DropoutGenerator: the random stream behind dropout, whose whole state is sixteen bytes.
//
// It is the trainer's one piece of random state that a step moves and no formula gives back: it is registered as a
// mirrored object, captured before every gate and restored by an incident.
//
// Threads: used by the trainer's thread.
// Errors: Restore refuses bytes of the wrong length with kDataLoss and changes nothing.
// Invariants: Restore(Capture()) gives back the very same masks, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "integrations/examples/byte_lm/dropout_draw.h"
#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

class DropoutGenerator {
 public:
  static constexpr size_t kStateBytes = 16;

  // One stream for all ranks, of which each data-parallel rank takes its own stretch: a sample has the same masks
  // however many ranks share the batch. Tensor-parallel ranks of one data-parallel rank draw the same masks: they hold
  // the same activations.
  DropoutGenerator(uint64_t seed, int dp_rank, int dp_size);

  // Takes the draws for a mask of `count` elements on every data-parallel rank out of the stream; gives this rank's.
  // REQUIRES: 0 <= probability < 1.
  DropoutDraws Draw(double probability, size_t count);

  // mask[i] becomes 0 with this probability, else 1 / (1 - probability). REQUIRES: 0 <= probability < 1.
  template <typename Real>
  void FillMask(double probability, size_t count, Real* mask);

  // Appends kStateBytes bytes: key and counter, little-endian.
  void Capture(std::vector<uint8_t>* out) const;
  Status Restore(const uint8_t* bytes, uint64_t size_bytes);

 private:
  uint64_t key_;
  uint64_t counter_ = 0;  // 64-bit draws of all ranks so far; each serves two mask elements
  uint64_t dp_rank_, dp_size_;
};

// What FillMask does with its draws.
template <typename Real>
void MaskFromDraws(const DropoutDraws& draws, double probability, size_t count, Real* mask);

}  // namespace kintsugi::byte_lm
