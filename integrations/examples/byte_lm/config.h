// What a run of byte_lm is made of: the shape of the network and the settings of its training.
//
// Threads: plain values.
// Errors: Validate looks at each struct as a whole and names the field, its value and what would be right.
// Units: dimensions in elements, steps in optimizer updates; learning rates per update.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

// A decoder-only transformer over bytes: pre-layer-norm blocks, learned positions, untied head.
struct ModelConfig {
  int64_t vocabulary = 256;  // one entry per byte value
  int64_t context = 64;      // bytes the network sees at once
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t width = 64;              // of the residual stream
  int64_t hidden_multiple = 4;     // hidden width of the MLP, in widths
  double dropout = 0.05;           // after the embedding, the attention and the MLP
  double layer_norm_epsilon = 1e-5;

  int64_t HeadWidth() const { return width / heads; }
  int64_t Hidden() const { return width * hidden_multiple; }
};

struct TrainConfig {
  uint64_t seed = 1;          // of everything random: initial weights, shuffling, dropout
  int64_t steps = 200;        // length of the learning rate schedule
  int64_t batch = 8;          // windows per data-parallel rank and step
  int64_t warmup_steps = 20;
  double learning_rate_max = 1e-2;
  double learning_rate_min = 1e-3;
  double weight_decay = 0.01;  // decoupled (AdamW), on matrices only
  double gradient_clip = 1.0;  // limit of the global gradient norm; 0 switches clipping off
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
};

// `tensor_parallel` ranks share the heads and the MLP's hidden units, so it must divide both.
Status Validate(const ModelConfig& config, int tensor_parallel);
Status Validate(const TrainConfig& config);

}  // namespace kintsugi::byte_lm
