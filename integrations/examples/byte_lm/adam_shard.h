// AdamShard: the ZeRO-1 optimizer of one rank (Rajbhandari et al. 2020): AdamW (Loshchilov and Hutter 2019) over one
// equal range of the flat parameter buffer, with fp32 master weights.
//
// The update is a list of pieces, one per parameter that meets the range, so that a caller can stop, and a fault can
// strike, between two of them. A range inside one large parameter is cut into kPiecesMin pieces.
//
// Threads: one user at a time.
// Ownership: the three state arrays are the caller's, in the compute's memory, 64-byte aligned, ShardRange().size()
// floats each. The compute outlives the shard.
// Units: steps count from 1.
// Invariants: UpdatePiece is arithmetic on this rank's memory alone: no communication, no allocation, no failure.
// Elements of the range that belong to no parameter are never written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/config.h"
#include "integrations/examples/byte_lm/parameter_table.h"

namespace kintsugi::byte_lm {

struct OptimizerState {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
};

// A run of elements of one parameter that lies in this rank's range.
struct UpdatePiece {
  size_t parameter = 0;   // place in the table
  size_t flat_begin = 0;  // in the flat buffers
  size_t state_begin = 0;  // in the state arrays
  size_t local_begin = 0;  // in the row-major order of the parameter's local box
  size_t count = 0;
};

struct UpdateScalars {
  int64_t step = 0;
  double learning_rate = 0;
  double gradient_scale = 1;  // from clipping
};

class AdamShard {
 public:
  static constexpr size_t kPiecesMin = 4;

  AdamShard(const TrainConfig& config, const ParameterTable& table, int shard, OptimizerState state,
            Compute<float>& compute = HostCompute<float>());

  FlatSpan range() const { return range_; }
  const std::vector<UpdatePiece>& pieces() const { return pieces_; }
  const OptimizerState& state() const { return state_; }

  // Step 0: masters from the initial parameters, moments zero.
  void Initialize(const float* parameters);

  // This rank's part of the squared global gradient norm. Replicated parameters count on tensor-parallel rank 0 alone,
  // so that the sum over shard group and tensor-parallel group counts every element once. NaN after an error of the
  // compute, whose next wait tells which.
  double SumOfSquares(const float* gradients) const;

  // REQUIRES: index < pieces().size().
  void Update(size_t index, const UpdateScalars& scalars, const float* gradients);

 private:
  void CutPieces();
  void AddPieces(size_t parameter, size_t begin, size_t end, size_t piece_count_max);

  const TrainConfig config_;
  const ParameterTable& table_;
  const FlatSpan range_;
  const OptimizerState state_;
  Compute<float>& compute_;
  std::vector<UpdatePiece> pieces_;
  mutable ComputeArray<double> sums_;  // of each piece
};

// What a gradient of this norm is multiplied with so that it stays within `clip`; clip 0 means no limit.
double ClipScale(double norm, double clip);

}  // namespace kintsugi::byte_lm
