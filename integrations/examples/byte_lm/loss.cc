#include "integrations/examples/byte_lm/loss.h"

#include <cmath>

#include "integrations/examples/byte_lm/matrix.h"

namespace kintsugi::byte_lm {

template <typename Real>
double CrossEntropy(int64_t vocabulary, const Real* logits, std::span<const uint8_t> targets, Real* dlogits) {
  const Real share = Real{1} / static_cast<Real>(targets.size());
  double total = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    const int64_t start = static_cast<int64_t>(row) * vocabulary;
    const ConstVector<Real> in(logits + start, vocabulary);
    Vector<Real> gradient(dlogits + start, vocabulary);
    const Real largest = in.maxCoeff();
    gradient = (in - largest).exp();
    const Real sum = gradient.sum();
    total += std::log(static_cast<double>(sum)) + static_cast<double>(largest) - static_cast<double>(in[targets[row]]);
    gradient *= share / sum;
    gradient[targets[row]] -= share;
  }
  return total / static_cast<double>(targets.size());
}

template double CrossEntropy<float>(int64_t, const float*, std::span<const uint8_t>, float*);
template double CrossEntropy<double>(int64_t, const double*, std::span<const uint8_t>, double*);

}  // namespace kintsugi::byte_lm
