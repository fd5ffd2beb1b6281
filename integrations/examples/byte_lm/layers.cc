#include "integrations/examples/byte_lm/layers.h"

#include <cmath>

#include "integrations/examples/byte_lm/matrix.h"

namespace kintsugi::byte_lm {
namespace {

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

}  // namespace

template <typename Real>
void AddBias(int64_t rows, int64_t columns, const Real* bias, Real* y) {
  View<Real>(y, rows, columns).rowwise() += ConstRowVector<Real>(bias, columns);
}

template <typename Real>
void SumRows(int64_t rows, int64_t columns, const Real* x, Real* sum) {
  RowVector<Real> total(sum, columns);
  total.setZero();
  for (int64_t row = 0; row < rows; ++row) total += ConstRowVector<Real>(x + row * columns, columns);
}

template <typename Real>
void LayerNormForward(int64_t rows, int64_t columns, Real epsilon, const Real* x, const Real* weight, const Real* bias,
                      const NormMemory<Real>& memory, Real* y) {
  const ConstVector<Real> scale(weight, columns), shift(bias, columns);
  for (int64_t row = 0; row < rows; ++row) {
    const ConstVector<Real> in(x + row * columns, columns);
    Vector<Real> normalized(memory.normalized + row * columns, columns);
    normalized = in - in.mean();
    const Real inverse = Real{1} / std::sqrt(normalized.square().mean() + epsilon);
    normalized *= inverse;
    memory.inverse_deviation[row] = inverse;
    Vector<Real>(y + row * columns, columns) = normalized * scale + shift;
  }
}

template <typename Real>
void LayerNormBackward(int64_t rows, int64_t columns, const Real* dy, const Real* weight,
                       const NormMemory<Real>& memory, Real* dx, Real* dweight, Real* dbias) {
  const ConstVector<Real> scale(weight, columns);
  Vector<Real> scale_gradient(dweight, columns), shift_gradient(dbias, columns);
  scale_gradient.setZero();
  shift_gradient.setZero();
  for (int64_t row = 0; row < rows; ++row) {
    const ConstVector<Real> out(dy + row * columns, columns);
    const ConstVector<Real> normalized(memory.normalized + row * columns, columns);
    scale_gradient += out * normalized;
    shift_gradient += out;
    // The normalized row has mean 0 and mean square 1: the gradient loses its parts along both.
    const Real mean = (out * scale).mean();
    const Real along = (out * scale * normalized).mean();
    Vector<Real>(dx + row * columns, columns) +=
        memory.inverse_deviation[row] * (out * scale - mean - along * normalized);
  }
}

template <typename Real>
void GeluForward(int64_t count, const Real* x, Real* tanh_memory, Real* y) {
  const ConstVector<Real> in(x, count);
  Vector<Real> inner(tanh_memory, count);
  inner = (Real(kGeluScale) * in * (Real{1} + Real(kGeluCubic) * in.square())).tanh();
  Vector<Real>(y, count) = Real(0.5) * in * (Real{1} + inner);
}

template <typename Real>
void GeluBackward(int64_t count, const Real* x, const Real* tanh_memory, const Real* dy, Real* dx) {
  const ConstVector<Real> in(x, count), inner(tanh_memory, count), out(dy, count);
  Vector<Real>(dx, count) =
      out * (Real(0.5) * (Real{1} + inner) +
             Real(0.5 * kGeluScale) * in * (Real{1} - inner.square()) * (Real{1} + Real(3 * kGeluCubic) * in.square()));
}

#define KINTSUGI_BYTE_LM_LAYERS(Real)                                                                                \
  template void AddBias<Real>(int64_t, int64_t, const Real*, Real*);                                                 \
  template void SumRows<Real>(int64_t, int64_t, const Real*, Real*);                                                 \
  template void LayerNormForward<Real>(int64_t, int64_t, Real, const Real*, const Real*, const Real*,                \
                                       const NormMemory<Real>&, Real*);                                              \
  template void LayerNormBackward<Real>(int64_t, int64_t, const Real*, const Real*, const NormMemory<Real>&, Real*,  \
                                        Real*, Real*);                                                               \
  template void GeluForward<Real>(int64_t, const Real*, Real*, Real*);                                               \
  template void GeluBackward<Real>(int64_t, const Real*, const Real*, const Real*, Real*)

KINTSUGI_BYTE_LM_LAYERS(float);
KINTSUGI_BYTE_LM_LAYERS(double);
#undef KINTSUGI_BYTE_LM_LAYERS

}  // namespace kintsugi::byte_lm
