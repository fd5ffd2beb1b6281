// BatchIterator: which windows of the text a rank trains on in a step, as a pure function of both.
//
// Every epoch is a new seeded shuffle of all windows. The epochs, one behind the other, form an endless line; a step's
// global batch covers the next dp_size * batch places of it, each data-parallel rank its own stretch. Where a step
// begins is counted in samples (data_cursor.h), because a run may go on with another number of ranks.
//
// Threads: immutable.
// Ownership: the text must outlive the iterator.
// Invariants: over all ranks and steps every window is used exactly once per epoch, also where a batch spans two
// epochs.
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

  // The rank's stretch of the global batch of step `step` of a run that began at place 0.
  // REQUIRES: step >= 1; 0 <= dp_rank < dp_size.
  void Fill(Step step, int dp_rank, Batch* batch) const;
  // The same of the global batch that begins at `place`.
  void FillFrom(uint64_t place, int dp_rank, Batch* batch) const;

  // Other ranks share the global batch from now on.
  void Divide(int64_t batch, int dp_size) {
    batch_ = static_cast<uint64_t>(batch);
    dp_size_ = static_cast<uint64_t>(dp_size);
  }

  // Samples that all ranks together take in a step.
  uint64_t global_batch() const { return batch_ * dp_size_; }

  uint64_t windows_per_epoch() const { return windows_; }

 private:
  BatchIterator(const TextData& text, uint64_t seed, int64_t context, int64_t batch, int dp_size);

  const TextData* text_;
  uint64_t seed_;
  int64_t context_;
  uint64_t batch_, dp_size_, windows_;
};

}  // namespace kintsugi::byte_lm
