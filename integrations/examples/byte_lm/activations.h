// Activations: the memory that one forward pass leaves behind for its backward pass, allocated once,
// in the memory of what computes.
//
// Threads: one user at a time.
// Units: elements; N = batch * context positions.
#pragma once

#include <cstdint>
#include <vector>

#include "integrations/examples/byte_lm/attention.h"
#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/config.h"
#include "integrations/examples/byte_lm/layers.h"

namespace kintsugi::byte_lm {

// The widths on one tensor-parallel rank.
struct LocalShape {
  int64_t batch, context, positions, width, vocabulary;
  int64_t hidden;  // local part of the MLP
  AttentionShape attention;
};

inline LocalShape LocalShapeOf(const ModelConfig& config, int tp_size, int64_t batch) {
  return {batch, config.context, batch * config.context, config.width, config.vocabulary, config.Hidden() / tp_size,
          {batch, config.context, config.heads / tp_size, config.HeadWidth()}};
}

template <typename Real>
struct NormBuffers {
  NormBuffers(ComputeMemory& memory, int64_t rows, int64_t columns)
      : normalized(memory, static_cast<size_t>(rows * columns)),
        inverse_deviation(memory, static_cast<size_t>(rows)),
        output(memory, static_cast<size_t>(rows * columns)) {}
  NormMemory<Real> memory() { return {normalized.data(), inverse_deviation.data()}; }
  ComputeArray<Real> normalized, inverse_deviation, output;
};

template <typename Real>
struct BlockActivations {
  BlockActivations(ComputeMemory& memory, const LocalShape& s)
      : attention_norm(memory, s.positions, s.width),
        mlp_norm(memory, s.positions, s.width),
        qkv(memory, static_cast<size_t>(s.positions * s.attention.QkvColumns())),
        probabilities(memory, static_cast<size_t>(s.attention.ProbabilityCount())),
        attended(memory, static_cast<size_t>(s.positions * s.attention.OutColumns())),
        up(memory, static_cast<size_t>(s.positions * s.hidden)),
        gelu_tanh(memory, up.size()),
        gelu(memory, up.size()),
        attention_mask(memory, static_cast<size_t>(s.positions * s.width)),
        mlp_mask(memory, attention_mask.size()) {}
  NormBuffers<Real> attention_norm, mlp_norm;
  ComputeArray<Real> qkv, probabilities, attended, up, gelu_tanh, gelu;
  ComputeArray<Real> attention_mask, mlp_mask;
};

template <typename Real>
struct Activations {
  Activations(Compute<Real>& compute, const LocalShape& s, int64_t layers)
      : residual(compute, static_cast<size_t>(s.positions * s.width)),
        branch(compute, residual.size()),
        embedding_mask(compute, residual.size()),
        final_norm(compute, s.positions, s.width),
        logits(compute, static_cast<size_t>(s.positions * s.vocabulary)),
        logit_gradient(compute, logits.size()),
        residual_gradient(compute, residual.size()),
        branch_gradient(compute, residual.size()),
        wide_gradient(compute, static_cast<size_t>(s.positions * s.hidden)),
        qkv_gradient(compute, static_cast<size_t>(s.positions * s.attention.QkvColumns())),
        attended_gradient(compute, static_cast<size_t>(s.positions * s.attention.OutColumns())),
        score_scratch(compute, compute.AttentionScratch(s.attention)),
        tokens(compute, 2 * static_cast<size_t>(s.positions)) {
    for (int64_t i = 0; i < layers; ++i) blocks.emplace_back(compute, s);
  }
  const uint8_t* inputs() const { return tokens.data(); }
  const uint8_t* targets() const { return tokens.data() + tokens.size() / 2; }

  std::vector<BlockActivations<Real>> blocks;
  ComputeArray<Real> residual;  // the stream that every block adds to
  ComputeArray<Real> branch;    // one block's contribution
  ComputeArray<Real> embedding_mask;
  NormBuffers<Real> final_norm;
  ComputeArray<Real> logits, logit_gradient;
  ComputeArray<Real> residual_gradient, branch_gradient, wide_gradient, qkv_gradient, attended_gradient;
  ComputeArray<Real> score_scratch;
  ComputeArray<uint8_t> tokens;  // inputs, then targets
  bool masked = false;  // the last forward pass used dropout
};

}  // namespace kintsugi::byte_lm
