// The layers that act on each position by itself: linear, layer norm, GELU; each with its exact gradient.
//
// Matrices are row-major; a linear layer's weight is outputs x inputs, so y = x weight^T + bias.
//
// Threads: pure functions on the caller's buffers; no allocation that outlives a call.
// Ownership: buffers are the caller's, each on a 64-byte boundary, and do not overlap.
// Real: float trains; double is what gradient checks use.
#pragma once

#include <cstdint>

namespace kintsugi::byte_lm {

struct LinearShape {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
};

// `bias` may be null.
template <typename Real>
void LinearForward(const LinearShape& shape, const Real* x, const Real* weight, const Real* bias, Real* y);

template <typename Real>
void LinearInputGradient(const LinearShape& shape, const Real* dy, const Real* weight, Real* dx);

// Overwrites `dweight`, and `dbias` unless it is null.
template <typename Real>
void LinearWeightGradient(const LinearShape& shape, const Real* x, const Real* dy, Real* dweight, Real* dbias);

// Adds `bias` to each of the rows of y.
template <typename Real>
void AddBias(int64_t rows, int64_t columns, const Real* bias, Real* y);

// Overwrites `sum` with the sum of the rows of x.
template <typename Real>
void SumRows(int64_t rows, int64_t columns, const Real* x, Real* sum);

// What layer norm (Ba et al. 2016) keeps for its gradient: normalized rows and one inverse deviation per row.
template <typename Real>
struct NormMemory {
  Real* normalized = nullptr;         // rows x columns
  Real* inverse_deviation = nullptr;  // rows
};

template <typename Real>
void LayerNormForward(int64_t rows, int64_t columns, Real epsilon, const Real* x, const Real* weight, const Real* bias,
                      const NormMemory<Real>& memory, Real* y);

// Adds the gradient of x to `dx`; overwrites `dweight` and `dbias`.
template <typename Real>
void LayerNormBackward(int64_t rows, int64_t columns, const Real* dy, const Real* weight,
                       const NormMemory<Real>& memory, Real* dx, Real* dweight, Real* dbias);

// GELU in its tanh form (Hendrycks and Gimpel 2016). `tanh_memory` keeps the inner tanh for the gradient.
template <typename Real>
void GeluForward(int64_t count, const Real* x, Real* tanh_memory, Real* y);

// dx may be dy.
template <typename Real>
void GeluBackward(int64_t count, const Real* x, const Real* tanh_memory, const Real* dy, Real* dx);

}  // namespace kintsugi::byte_lm
