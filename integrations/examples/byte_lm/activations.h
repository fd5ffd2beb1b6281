// Activations: the memory that one forward pass leaves behind for its backward pass, allocated once.
//
// Threads: one user at a time.
// Units: elements; N = batch * context positions.
#pragma once

#include <cstdint>
#include <vector>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "integrations/examples/byte_lm/attention.h"
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
  NormBuffers(int64_t rows, int64_t columns)
      : normalized(static_cast<size_t>(rows * columns)), inverse_deviation(static_cast<size_t>(rows)),
        output(static_cast<size_t>(rows * columns)) {}
  NormMemory<Real> memory() { return {normalized.data(), inverse_deviation.data()}; }
  AlignedBuffer<Real> normalized, inverse_deviation, output;
};

template <typename Real>
struct BlockActivations {
  explicit BlockActivations(const LocalShape& s)
      : attention_norm(s.positions, s.width), mlp_norm(s.positions, s.width),
        qkv(static_cast<size_t>(s.positions * s.attention.QkvColumns())),
        probabilities(static_cast<size_t>(s.attention.ProbabilityCount())),
        attended(static_cast<size_t>(s.positions * s.attention.OutColumns())),
        up(static_cast<size_t>(s.positions * s.hidden)), gelu_tanh(up.size()), gelu(up.size()),
        attention_mask(static_cast<size_t>(s.positions * s.width)), mlp_mask(attention_mask.size()) {}
  NormBuffers<Real> attention_norm, mlp_norm;
  AlignedBuffer<Real> qkv, probabilities, attended, up, gelu_tanh, gelu;
  AlignedBuffer<Real> attention_mask, mlp_mask;
};

template <typename Real>
struct Activations {
  Activations(const LocalShape& s, int64_t layers)
      : residual(static_cast<size_t>(s.positions * s.width)), branch(residual.size()), embedding_mask(residual.size()),
        final_norm(s.positions, s.width), logits(static_cast<size_t>(s.positions * s.vocabulary)),
        logit_gradient(logits.size()), residual_gradient(residual.size()), branch_gradient(residual.size()),
        wide_gradient(static_cast<size_t>(s.positions * s.hidden)),
        qkv_gradient(static_cast<size_t>(s.positions * s.attention.QkvColumns())),
        attended_gradient(static_cast<size_t>(s.positions * s.attention.OutColumns())),
        score_scratch(static_cast<size_t>(s.context * s.context)), inputs(static_cast<size_t>(s.positions)),
        targets(static_cast<size_t>(s.positions)) {
    for (int64_t i = 0; i < layers; ++i) blocks.emplace_back(s);
  }
  std::vector<BlockActivations<Real>> blocks;
  AlignedBuffer<Real> residual;  // the stream that every block adds to
  AlignedBuffer<Real> branch;    // one block's contribution
  AlignedBuffer<Real> embedding_mask;
  NormBuffers<Real> final_norm;
  AlignedBuffer<Real> logits, logit_gradient;
  AlignedBuffer<Real> residual_gradient, branch_gradient, wide_gradient, qkv_gradient, attended_gradient;
  AlignedBuffer<Real> score_scratch;
  AlignedBuffer<uint8_t> inputs, targets;
  bool masked = false;  // the last forward pass used dropout
};

}  // namespace kintsugi::byte_lm
