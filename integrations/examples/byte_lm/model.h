// Model: forward and exact backward pass of the byte-level transformer on one tensor-parallel rank.
//
// Parameters and gradients are flat buffers in the compute's memory, laid out by a ParameterTable; the model owns only
// activations. Under tensor
// parallelism each rank computes its heads and hidden units, and the partial sums meet in one all-reduce per half block
// and direction; everything outside (residual stream, norms, masks, logits) is the same on every rank, bit for bit.
//
// Threads: one user at a time; the host's products run on the calling thread.
// Ownership: owns activations; the table and the compute must outlive the model.
// Errors: the group's failures are returned at once. The activations are then useless, and the next Forward starts
// anew. A device's are told by its next wait (compute.h). Real: float trains; double is what gradient checks use, on
// one tensor-parallel rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "integrations/examples/byte_lm/activations.h"
#include "integrations/examples/byte_lm/collectives.h"
#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/config.h"
#include "integrations/examples/byte_lm/dropout.h"
#include "integrations/examples/byte_lm/parameter_table.h"

namespace kintsugi::byte_lm {

template <typename Real>
class Model {
 public:
  // `batch` windows are processed at once. REQUIRES: the table was built from `config`.
  Model(const ModelConfig& config, const ParameterTable& table, int64_t batch,
        Compute<Real>& compute = HostCompute<Real>());

  // `windows` holds batch rows of context + 1 bytes: each byte predicts the next. Without a generator nothing is
  // dropped. `loss`, in the compute's memory, becomes the mean cross-entropy in nats.
  Status Forward(const Real* parameters, std::span<const uint8_t> windows, DropoutGenerator* dropout, Collectives& tp,
                 double* loss);

  // Overwrites the gradients of the loss of the last Forward; gaps of the buffer are left alone.
  // REQUIRES: Forward returned ok with these parameters.
  Status Backward(const Real* parameters, Collectives& tp, Real* gradients);

  // Scores of the byte after `position` in window `window` of the last Forward: vocabulary elements in the compute's
  // memory.
  std::span<const Real> Logits(int64_t window, int64_t position) const;

 private:
  using Block = BlockActivations<Real>;

  void SplitWindows(std::span<const uint8_t> windows);
  EmbeddingShape Embedding() const { return {shape_.positions, shape_.context, shape_.vocabulary, shape_.width}; }
  Status AttentionHalfForward(const Real* parameters, const BlockParameters& p, Block& a, DropoutGenerator* dropout,
                              Collectives& tp);
  Status MlpHalfForward(const Real* parameters, const BlockParameters& p, Block& a, DropoutGenerator* dropout,
                        Collectives& tp);
  Status AttentionHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp,
                               Real* gradients);
  Status MlpHalfBackward(const Real* parameters, const BlockParameters& p, Block& a, Collectives& tp, Real* gradients);
  void NormForward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm);
  void NormBackward(const Real* parameters, size_t weight, size_t bias, NormBuffers<Real>& norm, const Real* dy,
                    Real* gradients);
  // Sums the partial branch over the group, adds the bias, drops, and adds the result to the residual stream.
  Status JoinBranch(const Real* bias, ComputeArray<Real>& mask, DropoutGenerator* dropout, Collectives& tp);
  void FillMask(DropoutGenerator& dropout, ComputeArray<Real>& mask);
  // The gradient of what entered JoinBranch, into branch_gradient.
  void LeaveBranch(const ComputeArray<Real>& mask);

  const Real* At(const Real* flat, size_t parameter) const { return flat + table_[parameter].offset; }
  Real* At(Real* flat, size_t parameter) const { return flat + table_[parameter].offset; }

  const ModelConfig config_;
  const ParameterTable& table_;
  Compute<Real>& compute_;
  const LocalShape shape_;
  const LinearShape qkv_, projection_, up_, down_, head_;
  Activations<Real> act_;
  std::vector<uint8_t> split_;  // the host's copy of the tokens
};

}  // namespace kintsugi::byte_lm
