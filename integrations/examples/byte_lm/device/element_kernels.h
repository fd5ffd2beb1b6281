// Kernels with one thread for each element of their result. See kernel_work.h; the meaning of each is in compute.h.
#pragma once

#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/device/kernel_work.h"
#include "integrations/examples/byte_lm/dropout_draw.h"

namespace kintsugi::byte_lm::device {

struct FillKernel : ElementKernel<FillKernel> {
  float value;
  float* out;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { out[i] = value; }
};

struct CopyKernel : ElementKernel<CopyKernel> {
  const float* from;
  float* to;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { to[i] = from[i]; }
};

struct ScaleKernel : ElementKernel<ScaleKernel> {
  float factor;
  float* values;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { values[i] *= factor; }
};

struct AddKernel : ElementKernel<AddKernel> {
  const float* x;
  float* sum;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { sum[i] += x[i]; }
};

struct AddProductKernel : ElementKernel<AddProductKernel> {
  const float *x, *factor;
  float* sum;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { sum[i] += x[i] * factor[i]; }
};

struct ProductKernel : ElementKernel<ProductKernel> {
  const float *x, *factor;
  float* out;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { out[i] = x[i] * factor[i]; }
};

struct NarrowKernel : ElementKernel<NarrowKernel> {
  const double* from;
  float* to;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { to[i] = static_cast<float>(from[i]); }
};

struct AddBiasKernel : ElementKernel<AddBiasKernel> {
  uint64_t columns;
  const float* bias;
  float* y;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const { y[i] += bias[i % columns]; }
};

inline constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

struct GeluForwardKernel : ElementKernel<GeluForwardKernel> {
  const float* x;
  float *tanh_memory, *y;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const float in = x[i], inner = tanhf(kGeluScale * in * (1.0f + kGeluCubic * in * in));
    tanh_memory[i] = inner;
    y[i] = 0.5f * in * (1.0f + inner);
  }
};

struct GeluBackwardKernel : ElementKernel<GeluBackwardKernel> {
  const float *x, *tanh_memory, *dy;
  float* dx;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const float in = x[i], inner = tanh_memory[i];
    const float slope =
        0.5f * (1.0f + inner) + 0.5f * kGeluScale * in * (1.0f - inner * inner) * (1.0f + 3.0f * kGeluCubic * in * in);
    dx[i] = dy[i] * slope;
  }
};

// A thread makes both elements of a draw: count is that of draws.
struct MaskKernel : ElementKernel<MaskKernel> {
  uint64_t elements;
  DropoutDraws draws;
  float kept;
  float* mask;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const uint64_t draw = DrawOfPair(draws, i);
    mask[2 * i] = static_cast<uint32_t>(draw) < draws.dropped_below ? 0.0f : kept;
    if (2 * i + 1 < elements) mask[2 * i + 1] = static_cast<uint32_t>(draw >> 32) < draws.dropped_below ? 0.0f : kept;
  }
};

struct EmbedForwardKernel : ElementKernel<EmbedForwardKernel> {
  uint64_t context, width;
  const uint8_t* inputs;
  const float *token, *position;
  float* out;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const uint64_t row = i / width, column = i % width;
    out[i] = token[inputs[row] * width + column] + position[row % context * width + column];
  }
};

// Each element of the token gradient looks through all rows for those of its byte: in order, and without atomics.
struct TokenGradientKernel : ElementKernel<TokenGradientKernel> {
  uint64_t rows, width;
  const uint8_t* inputs;
  const float* dout;
  float* dtoken;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const uint64_t byte = i / width, column = i % width;
    float sum = 0;
    for (uint64_t row = 0; row < rows; ++row)
      if (inputs[row] == byte) sum += dout[row * width + column];
    dtoken[i] = sum;
  }
};

struct PositionGradientKernel : ElementKernel<PositionGradientKernel> {
  uint64_t rows, context, width;
  const float* dout;
  float* dposition;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const uint64_t column = i % width;
    float sum = 0;
    for (uint64_t row = i / width; row < rows; row += context) sum += dout[row * width + column];
    dposition[i] = sum;
  }
};

struct AdamKernel : ElementKernel<AdamKernel> {
  AdamConstants<float> k;
  const float* gradient;
  float *master, *exp_avg, *exp_avg_sq;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    const float g = gradient[i] * k.gradient_scale;
    const float mean = k.beta1 * exp_avg[i] + k.one_minus_beta1 * g;
    const float square = k.beta2 * exp_avg_sq[i] + k.one_minus_beta2 * g * g;
    const float direction = mean * k.inverse_correction1 / (sqrtf(square * k.inverse_correction2) + k.epsilon);
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    master[i] -= k.learning_rate * direction + k.decay * master[i];
  }
};

// data[i] becomes the sum over ranks in rank order; `others` holds the parts of the other ranks, `each` elements apart,
// in rank order without `rank`, whose part is data itself.
struct RankSumKernel : ElementKernel<RankSumKernel> {
  uint32_t ranks, rank;
  uint64_t each;
  const float* others;
  float* data;
  KINTSUGI_HOST_DEVICE void At(uint64_t i) const {
    float sum = 0;
    for (uint32_t r = 0; r < ranks; ++r) {
      const float part = r == rank ? data[i] : others[(r < rank ? r : r - 1) * each + i];
      sum = r == 0 ? part : sum + part;
    }
    data[i] = sum;
  }
};

}  // namespace kintsugi::byte_lm::device
