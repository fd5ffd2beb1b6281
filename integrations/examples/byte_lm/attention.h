// Causal multi-head attention (Vaswani et al. 2017) over a batch of equally long windows, with its exact gradient.
//
// A row of `qkv` holds, for each head of this rank, its query, key and value side by side; a row of `out` holds the
// heads' results in the same order.
//
// Threads: pure functions on the caller's buffers.
// Ownership: buffers are the caller's, each on a 64-byte boundary, and do not overlap.
#pragma once

#include <cstdint>

namespace kintsugi::byte_lm {

struct AttentionShape {
  int64_t batch = 0;
  int64_t context = 0;
  int64_t heads = 0;  // of this rank
  int64_t head_width = 0;

  int64_t QkvColumns() const { return 3 * heads * head_width; }
  int64_t OutColumns() const { return heads * head_width; }
  int64_t ProbabilityCount() const { return batch * heads * context * context; }
};

// qkv: (batch * context) x QkvColumns. `probabilities` (ProbabilityCount elements) is kept for the gradient.
template <typename Real>
void AttentionForward(const AttentionShape& shape, const Real* qkv, Real* probabilities, Real* out);

// Overwrites `dqkv`. `scratch` holds context * context elements.
template <typename Real>
void AttentionBackward(const AttentionShape& shape, const Real* qkv, const Real* probabilities, const Real* dout,
                       Real* scratch, Real* dqkv);

}  // namespace kintsugi::byte_lm
