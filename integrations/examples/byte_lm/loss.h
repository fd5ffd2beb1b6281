// Cross-entropy of a softmax over byte values, in nats, averaged over all predicted bytes.
//
// Threads: pure functions on the caller's buffers.
// Ownership: buffers are the caller's, each on a 64-byte boundary.
#pragma once

#include <cstdint>
#include <span>

namespace kintsugi::byte_lm {

// Returns the mean loss of logits (targets.size() x vocabulary) and overwrites `dlogits` with its gradient.
template <typename Real>
double CrossEntropy(int64_t vocabulary, const Real* logits, std::span<const uint8_t> targets, Real* dlogits);

}  // namespace kintsugi::byte_lm
