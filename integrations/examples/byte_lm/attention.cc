#include "integrations/examples/byte_lm/attention.h"

#include <cmath>

#include "integrations/examples/byte_lm/matrix.h"

namespace kintsugi::byte_lm {
namespace {

// Turns row i of the scores into probabilities over positions 0 to i; later positions get exactly zero.
template <typename Real>
void CausalSoftmax(int64_t context, Real scale, Real* scores) {
  for (int64_t i = 0; i < context; ++i) {
    Vector<Real> row(scores + i * context, context);
    auto seen = row.head(i + 1);
    const Real largest = seen.maxCoeff();
    seen = ((seen - largest) * scale).exp();
    seen *= Real{1} / seen.sum();
    row.tail(context - i - 1).setZero();
  }
}

// Turns the gradient of the probabilities into that of the unscaled scores, in place.
template <typename Real>
void CausalSoftmaxGradient(int64_t context, Real scale, const Real* probabilities, Real* gradient) {
  for (int64_t i = 0; i < context; ++i) {
    const ConstVector<Real> p(probabilities + i * context, context);
    Vector<Real> g(gradient + i * context, context);
    const Real along = (g * p).sum();
    g = scale * p * (g - along);
  }
}

// The query, key and value of one head of one window, as views into rows of a qkv matrix.
template <typename Real>
struct HeadViews {
  HeadViews(const AttentionShape& s, int64_t window, int64_t head, Real* qkv)
      : first(qkv + window * s.context * s.QkvColumns() + head * 3 * s.head_width),
        query(first, s.context, s.head_width, Eigen::OuterStride<>(s.QkvColumns())),
        key(first + s.head_width, s.context, s.head_width, Eigen::OuterStride<>(s.QkvColumns())),
        value(first + 2 * s.head_width, s.context, s.head_width, Eigen::OuterStride<>(s.QkvColumns())) {}

  using Block = Eigen::Map<std::conditional_t<std::is_const_v<Real>, const Matrix<std::remove_const_t<Real>>,
                                              Matrix<Real>>,
                           Eigen::Unaligned, Eigen::OuterStride<>>;
  Real* first;
  Block query, key, value;
};

}  // namespace

template <typename Real>
void AttentionForward(const AttentionShape& s, const Real* qkv, Real* probabilities, Real* out) {
  const Real scale = Real{1} / std::sqrt(static_cast<Real>(s.head_width));
  for (int64_t window = 0; window < s.batch; ++window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const HeadViews<const Real> in(s, window, head, qkv);
      Real* p = probabilities + (window * s.heads + head) * s.context * s.context;
      View<Real> scores(p, s.context, s.context);
      scores.noalias() = in.query * in.key.transpose();
      CausalSoftmax(s.context, scale, p);
      Columns<Real> result(out + window * s.context * s.OutColumns() + head * s.head_width, s.context, s.head_width,
                           Eigen::OuterStride<>(s.OutColumns()));
      result.noalias() = scores * in.value;
    }
  }
}

template <typename Real>
void AttentionBackward(const AttentionShape& s, const Real* qkv, const Real* probabilities, const Real* dout,
                       Real* scratch, Real* dqkv) {
  const Real scale = Real{1} / std::sqrt(static_cast<Real>(s.head_width));
  View<Real> dscores(scratch, s.context, s.context);
  for (int64_t window = 0; window < s.batch; ++window) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const HeadViews<const Real> in(s, window, head, qkv);
      HeadViews<Real> gradient(s, window, head, dqkv);
      const Real* p = probabilities + (window * s.heads + head) * s.context * s.context;
      const ConstView<Real> weights(p, s.context, s.context);
      const ConstColumns<Real> dresult(dout + window * s.context * s.OutColumns() + head * s.head_width, s.context,
                                       s.head_width, Eigen::OuterStride<>(s.OutColumns()));
      gradient.value.noalias() = weights.transpose() * dresult;
      dscores.noalias() = dresult * in.value.transpose();
      CausalSoftmaxGradient(s.context, scale, p, scratch);
      gradient.query.noalias() = dscores * in.key;
      gradient.key.noalias() = dscores.transpose() * in.query;
    }
  }
}

template void AttentionForward<float>(const AttentionShape&, const float*, float*, float*);
template void AttentionForward<double>(const AttentionShape&, const double*, double*, double*);
template void AttentionBackward<float>(const AttentionShape&, const float*, const float*, const float*, float*, float*);
template void AttentionBackward<double>(const AttentionShape&, const double*, const double*, const double*, double*,
                                        double*);

}  // namespace kintsugi::byte_lm
