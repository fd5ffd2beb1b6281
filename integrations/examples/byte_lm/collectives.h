// Collectives: what the trainer needs from one process group, and nothing more.
//
// One object per group (data parallel, tensor parallel, shard group); ranks are numbered within the group.
//
// Threads: called by the trainer's thread only. An abort may come from another thread; the implementation then lets the
// call return kInterrupted or kCommFailure.
// Ownership: the caller owns every buffer. After a failed call the contents of its buffers are undefined.
// Errors: any failure is returned at once and callers pass it on at once, untouched, so that the training loop leaves.
// Invariants: every rank of the group gets the same bits, and the same bits again when the call is repeated with the
// same inputs: the order of summation depends on rank order and size alone.
#pragma once

#include <cstddef>

#include "runtime/base/result.h"
#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // data[i] becomes the sum of data[i] over the group.
  virtual Status AllReduceSum(float* data, size_t count) = 0;
  // all[r * count_each + i] becomes mine[i] of rank r. Moves bits: never computes with them. `mine` may lie outside
  // `all` or be the rank's own part of it.
  virtual Status AllGather(const float* mine, size_t count_each, float* all) = 0;
};

// The group of one rank.
class SingleRank final : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status AllReduceSum(float* data, size_t count) override;
  Status AllGather(const float* mine, size_t count_each, float* all) override;
};

// The sum of `value` over the group in double precision, added up in rank order by every rank for itself.
Result<double> GatherSum(Collectives& group, double value);

}  // namespace kintsugi::byte_lm
