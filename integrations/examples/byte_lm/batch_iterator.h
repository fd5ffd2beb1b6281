// BatchIterator: which windows of the text a rank trains on in a step, as a pure function of both.
//
// Every epoch is a new seeded shuffle of all windows. The epochs, one behind the other, form an endless line; the global
// batch of step k covers the places from (k - 1) * dp_size * batch on, each data-parallel rank its own stretch of it. So
// the position in the data is derived from the step: nothing has to be saved, mirrored or rolled back.
//
// Threads: immutable.
// Ownership: the text must outlive the iterator.
// Invariants: over all ranks and steps every window is used exactly once per epoch, also where a batch spans two epochs.
#pragma once

#include <cstdint>
#include <vector>

#include "integrations/examples/byte_lm/text_data.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

struct Batch {
  // One per window: epoch * windows per epoch + window; no two samples of a run share one.
  std::vector<uint64_t> sample_ids;
  // batch rows of context + 1 bytes.
  std::vector<uint8_t> windows;
};

class BatchIterator {
 public:
  // kInvalidArgument when the text is shorter than one window.
  static Result<BatchIterator> Create(const TextData& text, uint64_t seed, int64_t context, int64_t batch, int dp_size);

  // REQUIRES: step >= 1; 0 <= dp_rank < dp_size.
  void Fill(Step step, int dp_rank, Batch* batch) const;

  uint64_t windows_per_epoch() const { return windows_; }

 private:
  BatchIterator(const TextData& text, uint64_t seed, int64_t context, int64_t batch, int dp_size);

  const TextData* text_;
  uint64_t seed_;
  int64_t context_;
  uint64_t batch_, dp_size_, windows_;
};

}  // namespace kintsugi::byte_lm
