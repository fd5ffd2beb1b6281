// Kernels with one block for each row: layer norm, causal softmax, cross-entropy. See kernel_work.h.
#pragma once

#include "integrations/examples/byte_lm/device/kernel_work.h"

namespace kintsugi::byte_lm::device {

struct LayerNormForwardKernel {
  static constexpr uint32_t kPhases = 5;
  using Shared = BlockFold<float>;
  uint64_t rows, columns;
  float epsilon;
  const float *x, *weight, *bias;
  float *normalized, *inverse_deviation, *y;
  uint64_t Blocks() const { return rows; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t row, uint32_t thread, Shared& shared) const {
    const float width = static_cast<float>(columns);
    const uint64_t start = row * columns;
    if (phase == 1 || phase == 3) return shared.FoldSum(thread);
    if (phase == 0) {
      float sum = 0;
      for (uint64_t c = thread; c < columns; c += kBlockThreads) sum += x[start + c];
      shared.Put(thread, sum);
    } else if (phase == 2) {
      const float mean = shared.Sum() / width;
      float squares = 0;
      for (uint64_t c = thread; c < columns; c += kBlockThreads) {
        const float centered = x[start + c] - mean;
        normalized[start + c] = centered;
        squares += centered * centered;
      }
      shared.Put(thread, squares);
    } else {
      const float inverse = 1.0f / sqrtf(shared.Sum() / width + epsilon);
      for (uint64_t c = thread; c < columns; c += kBlockThreads) {
        const float value = normalized[start + c] * inverse;
        normalized[start + c] = value;
        y[start + c] = value * weight[c] + bias[c];
      }
      if (thread == 0) inverse_deviation[row] = inverse;
    }
  }
};

// dx += the gradient of x. The normalized row has mean 0 and mean square 1: the gradient loses its parts along both.
struct LayerNormInputGradientKernel {
  static constexpr uint32_t kPhases = 3;
  struct Shared {
    BlockFold<float> mean, along;
  };
  uint64_t rows, columns;
  const float *dy, *weight, *normalized, *inverse_deviation;
  float* dx;
  uint64_t Blocks() const { return rows; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t row, uint32_t thread, Shared& shared) const {
    const uint64_t start = row * columns;
    if (phase == 0) {
      float mean = 0, along = 0;
      for (uint64_t c = thread; c < columns; c += kBlockThreads) {
        const float scaled = dy[start + c] * weight[c];
        mean += scaled;
        along += scaled * normalized[start + c];
      }
      shared.mean.Put(thread, mean);
      shared.along.Put(thread, along);
    } else if (phase == 1) {
      shared.mean.FoldSum(thread);
      shared.along.FoldSum(thread);
    } else {
      const float width = static_cast<float>(columns);
      const float mean = shared.mean.Sum() / width, along = shared.along.Sum() / width;
      for (uint64_t c = thread; c < columns; c += kBlockThreads)
        dx[start + c] += inverse_deviation[row] * (dy[start + c] * weight[c] - mean - along * normalized[start + c]);
    }
  }
};

// Row r of the scores, in place: probabilities over columns 0 to r % context; later columns get exactly zero.
struct CausalSoftmaxKernel {
  static constexpr uint32_t kPhases = 5;
  using Shared = BlockFold<float>;
  uint64_t rows, context;
  float scale;
  float* scores;
  uint64_t Blocks() const { return rows; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t row, uint32_t thread, Shared& shared) const {
    float* const values = scores + row * context;
    const uint64_t seen = row % context + 1;
    if (phase == 1) return shared.FoldMax(thread);
    if (phase == 3) return shared.FoldSum(thread);
    if (phase == 0) {
      float largest = -FLT_MAX;
      for (uint64_t c = thread; c < seen; c += kBlockThreads) largest = values[c] > largest ? values[c] : largest;
      shared.Put(thread, largest);
    } else if (phase == 2) {
      const float largest = shared.Max();
      float sum = 0;
      for (uint64_t c = thread; c < seen; c += kBlockThreads) {
        values[c] = expf((values[c] - largest) * scale);
        sum += values[c];
      }
      shared.Put(thread, sum);
    } else {
      const float inverse = 1.0f / shared.Sum();
      for (uint64_t c = thread; c < context; c += kBlockThreads) values[c] = c < seen ? values[c] * inverse : 0.0f;
    }
  }
};

// Turns the gradient of the probabilities into that of the unscaled scores, in place.
struct CausalSoftmaxGradientKernel {
  static constexpr uint32_t kPhases = 3;
  using Shared = BlockFold<float>;
  uint64_t rows, context;
  float scale;
  const float* probabilities;
  float* gradient;
  uint64_t Blocks() const { return rows; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t row, uint32_t thread, Shared& shared) const {
    const float* const p = probabilities + row * context;
    float* const g = gradient + row * context;
    if (phase == 1) return shared.FoldSum(thread);
    if (phase == 0) {
      float along = 0;
      for (uint64_t c = thread; c < context; c += kBlockThreads) along += g[c] * p[c];
      shared.Put(thread, along);
    } else {
      const float along = shared.Sum();
      for (uint64_t c = thread; c < context; c += kBlockThreads) g[c] = scale * p[c] * (g[c] - along);
    }
  }
};

// row_loss[r] = -log of the target's probability; dlogits = its gradient over the number of rows.
struct CrossEntropyKernel {
  static constexpr uint32_t kPhases = 5;
  using Shared = BlockFold<float>;
  uint64_t rows, vocabulary;
  const float* logits;
  const uint8_t* targets;
  float* dlogits;
  double* row_loss;
  uint64_t Blocks() const { return rows; }

  KINTSUGI_HOST_DEVICE void Run(uint32_t phase, uint64_t row, uint32_t thread, Shared& shared) const {
    const float* const in = logits + row * vocabulary;
    float* const gradient = dlogits + row * vocabulary;
    if (phase == 1) return shared.FoldMax(thread);
    if (phase == 3) return shared.FoldSum(thread);
    if (phase == 0) {
      float largest = -FLT_MAX;
      for (uint64_t c = thread; c < vocabulary; c += kBlockThreads) largest = in[c] > largest ? in[c] : largest;
      shared.Put(thread, largest);
    } else if (phase == 2) {
      const float largest = shared.Max();
      float sum = 0;
      for (uint64_t c = thread; c < vocabulary; c += kBlockThreads) {
        gradient[c] = expf(in[c] - largest);
        sum += gradient[c];
      }
      // Kept where it outlives the next fold; thread 0 alone reads and writes it.
      if (thread == 0) row_loss[row] = static_cast<double>(largest);
      shared.Put(thread, sum);
    } else {
      const float sum = shared.Sum(), share = 1.0f / static_cast<float>(rows);
      const uint64_t target = targets[row];
      for (uint64_t c = thread; c < vocabulary; c += kBlockThreads) {
        const float value = gradient[c] * (share / sum);
        gradient[c] = c == target ? value - share : value;
      }
      if (thread == 0) row_loss[row] += log(static_cast<double>(sum)) - static_cast<double>(in[target]);
    }
  }
};

}  // namespace kintsugi::byte_lm::device
