// The linear layers of layers.h: three products of matrices, which are nearly all of a step.
#include "integrations/examples/byte_lm/layers.h"
#include "integrations/examples/byte_lm/matrix.h"

namespace kintsugi::byte_lm {

template <typename Real>
void LinearForward(const LinearShape& s, const Real* x, const Real* weight, const Real* bias, Real* y) {
  View<Real>(y, s.rows, s.outputs).noalias() =
      ConstView<Real>(x, s.rows, s.inputs) * ConstView<Real>(weight, s.outputs, s.inputs).transpose();
  if (bias != nullptr) AddBias(s.rows, s.outputs, bias, y);
}

template <typename Real>
void LinearInputGradient(const LinearShape& s, const Real* dy, const Real* weight, Real* dx) {
  View<Real>(dx, s.rows, s.inputs).noalias() =
      ConstView<Real>(dy, s.rows, s.outputs) * ConstView<Real>(weight, s.outputs, s.inputs);
}

template <typename Real>
void LinearWeightGradient(const LinearShape& s, const Real* x, const Real* dy, Real* dweight, Real* dbias) {
  View<Real>(dweight, s.outputs, s.inputs).noalias() =
      ConstView<Real>(dy, s.rows, s.outputs).transpose() * ConstView<Real>(x, s.rows, s.inputs);
  if (dbias != nullptr) SumRows(s.rows, s.outputs, dy, dbias);
}

#define KINTSUGI_BYTE_LM_LINEAR(Real)                                                                  \
  template void LinearForward<Real>(const LinearShape&, const Real*, const Real*, const Real*, Real*); \
  template void LinearInputGradient<Real>(const LinearShape&, const Real*, const Real*, Real*);        \
  template void LinearWeightGradient<Real>(const LinearShape&, const Real*, const Real*, Real*, Real*)

KINTSUGI_BYTE_LM_LINEAR(float);
KINTSUGI_BYTE_LM_LINEAR(double);
#undef KINTSUGI_BYTE_LM_LINEAR

}  // namespace kintsugi::byte_lm
