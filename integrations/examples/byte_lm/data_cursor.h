// DataCursor: how far a run has come in its data, counted in samples: they are the same whatever the number of ranks.
//
// What: an anchor, "after step s, n samples were consumed", and from there on a global batch for each step. The anchor
// is state: it is mirrored, saved, and moves when a run goes on elsewhere. Its bytes are values, `consumed_samples` and
// `data_step`, so a checkpoint of any format carries them as numbers. Between two anchors the place follows from the
// step, so an abandoned step leaves nothing behind.
// Errors: Restore refuses other bytes with kDataLoss and changes nothing.
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

class DataCursor {
 public:
  explicit DataCursor(uint64_t global_batch) : global_batch_(global_batch) {}

  // The place at which the batch of `step` begins; says that this step is under way. REQUIRES: behind the anchor.
  uint64_t Begin(Step step);
  // Appends the anchor that holds once the step under way is committed.
  void Capture(std::vector<uint8_t>* out) const;
  // Also of what version 0.1.0 saved: step and samples, 8 bytes each, little-endian.
  Status Restore(const uint8_t* bytes, uint64_t size_bytes);

 private:
  uint64_t SamplesAfter(uint64_t step) const { return samples_ + (step - step_) * global_batch_; }

  uint64_t global_batch_;
  uint64_t step_ = 0, samples_ = 0;  // the anchor
  uint64_t under_way_ = 0;           // step
};

}  // namespace kintsugi::byte_lm
