// The host's Compute: the functions of layers.h, attention.h and loss.h, and the loops that belong to none of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/dropout.h"
#include "integrations/examples/byte_lm/loss.h"
#include "integrations/examples/byte_lm/matrix.h"

namespace kintsugi::byte_lm {
namespace {

template <typename Real>
void AdamLoop(const AdamConstants<Real>& k, size_t count, const Real* __restrict gradient, Real* __restrict master,
              Real* __restrict exp_avg, Real* __restrict exp_avg_sq) {
  for (size_t i = 0; i < count; ++i) {
    const Real g = gradient[i] * k.gradient_scale;
    const Real mean = k.beta1 * exp_avg[i] + k.one_minus_beta1 * g;
    const Real square = k.beta2 * exp_avg_sq[i] + k.one_minus_beta2 * g * g;
    const Real direction = mean * k.inverse_correction1 / (std::sqrt(square * k.inverse_correction2) + k.epsilon);
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    master[i] -= k.learning_rate * direction + k.decay * master[i];
  }
}

// Eight running sums: one alone would make every addition wait for the one before it.
template <typename Real>
double SumOfSquaresOf(const Real* values, size_t count) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) sums[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

template <typename Real>
Vector<Real> All(size_t count, Real* values) {
  return Vector<Real>(values, static_cast<int64_t>(count));
}

template <typename Real>
ConstVector<Real> All(size_t count, const Real* values) {
  return ConstVector<Real>(values, static_cast<int64_t>(count));
}

template <typename Real>
class Host final : public Compute<Real> {
 public:
  Host() { PinBlocking(); }

  void* Allocate(size_t size_bytes) override {
    void* data = ::operator new(std::max<size_t>(size_bytes, 1), kAlignment);
    std::memset(data, 0, size_bytes);
    return data;
  }
  void Free(void* data) override { ::operator delete(data, kAlignment); }
  void Upload(void* to, const void* from, size_t size_bytes) override { Move(to, from, size_bytes); }
  Status Download(void* to, const void* from, size_t size_bytes) override {
    Move(to, from, size_bytes);
    return Status::Ok();
  }
  Status Settle() override { return Status::Ok(); }
  Status SettleThroughAbort() override { return Status::Ok(); }
  Status status() const override { return Status::Ok(); }

  void LinearForward(const LinearShape& s, const Real* x, const Real* weight, const Real* bias, Real* y) override {
    byte_lm::LinearForward<Real>(s, x, weight, bias, y);
  }
  void LinearInputGradient(const LinearShape& s, const Real* dy, const Real* weight, Real* dx) override {
    byte_lm::LinearInputGradient<Real>(s, dy, weight, dx);
  }
  void LinearWeightGradient(const LinearShape& s, const Real* x, const Real* dy, Real* dweight, Real* dbias) override {
    byte_lm::LinearWeightGradient<Real>(s, x, dy, dweight, dbias);
  }
  void AddBias(int64_t rows, int64_t columns, const Real* bias, Real* y) override {
    byte_lm::AddBias<Real>(rows, columns, bias, y);
  }
  void LayerNormForward(int64_t rows, int64_t columns, Real epsilon, const Real* x, const Real* weight,
                        const Real* bias, const NormMemory<Real>& memory, Real* y) override {
    byte_lm::LayerNormForward<Real>(rows, columns, epsilon, x, weight, bias, memory, y);
  }
  void LayerNormBackward(int64_t rows, int64_t columns, const Real* dy, const Real* weight,
                         const NormMemory<Real>& memory, Real* dx, Real* dweight, Real* dbias) override {
    byte_lm::LayerNormBackward<Real>(rows, columns, dy, weight, memory, dx, dweight, dbias);
  }
  void GeluForward(int64_t count, const Real* x, Real* tanh_memory, Real* y) override {
    byte_lm::GeluForward<Real>(count, x, tanh_memory, y);
  }
  void GeluBackward(int64_t count, const Real* x, const Real* tanh_memory, const Real* dy, Real* dx) override {
    byte_lm::GeluBackward<Real>(count, x, tanh_memory, dy, dx);
  }

  size_t AttentionScratch(const AttentionShape& s) const override { return static_cast<size_t>(s.context * s.context); }
  void AttentionForward(const AttentionShape& s, const Real* qkv, Real* probabilities, Real* out) override {
    byte_lm::AttentionForward<Real>(s, qkv, probabilities, out);
  }
  void AttentionBackward(const AttentionShape& s, const Real* qkv, const Real* probabilities, const Real* dout,
                         Real* scratch, Real* dqkv) override {
    byte_lm::AttentionBackward<Real>(s, qkv, probabilities, dout, scratch, dqkv);
  }

  void EmbedForward(const EmbeddingShape& s, const uint8_t* inputs, const Real* token, const Real* position,
                    Real* out) override {
    const ConstView<Real> tokens(token, s.vocabulary, s.width), positions(position, s.context, s.width);
    View<Real> rows(out, s.positions, s.width);
    for (int64_t row = 0; row < s.positions; ++row)
      rows.row(row) = tokens.row(inputs[row]) + positions.row(row % s.context);
  }
  void EmbedBackward(const EmbeddingShape& s, const uint8_t* inputs, const Real* dout, Real* dtoken,
                     Real* dposition) override {
    View<Real> tokens(dtoken, s.vocabulary, s.width), positions(dposition, s.context, s.width);
    const ConstView<Real> rows(dout, s.positions, s.width);
    tokens.setZero();
    positions.setZero();
    for (int64_t row = 0; row < s.positions; ++row) {
      tokens.row(inputs[row]) += rows.row(row);
      positions.row(row % s.context) += rows.row(row);
    }
  }
  void CrossEntropy(int64_t rows, int64_t vocabulary, const Real* logits, const uint8_t* targets, Real* dlogits,
                    double* loss) override {
    *loss = byte_lm::CrossEntropy<Real>(vocabulary, logits, {targets, static_cast<size_t>(rows)}, dlogits);
  }

  void FillMask(const DropoutDraws& draws, double probability, size_t count, Real* mask) override {
    MaskFromDraws(draws, probability, count, mask);
  }
  void Fill(size_t count, Real value, Real* out) override { std::fill_n(out, count, value); }
  void Copy(size_t count, const Real* from, Real* to) override { Move(to, from, count * sizeof(Real)); }
  void Scale(size_t count, Real factor, Real* values) override { All(count, values) *= factor; }
  void Add(size_t count, const Real* x, Real* sum) override { All(count, sum) += All(count, x); }
  void AddProduct(size_t count, const Real* x, const Real* factor, Real* sum) override {
    All(count, sum) += All(count, x) * All(count, factor);
  }
  void Product(size_t count, const Real* x, const Real* factor, Real* out) override {
    All(count, out) = All(count, x) * All(count, factor);
  }
  void Narrow(const double* from, Real* to) override { *to = static_cast<Real>(*from); }

  void SumOfSquares(size_t count, const Real* values, double* sum) override { *sum = SumOfSquaresOf(values, count); }
  void AdamUpdate(const AdamConstants<Real>& constants, size_t count, const Real* gradient, Real* master, Real* exp_avg,
                  Real* exp_avg_sq) override {
    AdamLoop(constants, count, gradient, master, exp_avg, exp_avg_sq);
  }

 private:
  static constexpr std::align_val_t kAlignment{kAlignmentBytes};
  static void Move(void* to, const void* from, size_t size_bytes) {
    if (size_bytes > 0 && to != from) std::memcpy(to, from, size_bytes);
  }
};

}  // namespace

template <typename Real>
Compute<Real>& HostCompute() {
  static Host<Real> host;
  return host;
}

template Compute<float>& HostCompute<float>();
template Compute<double>& HostCompute<double>();

}  // namespace kintsugi::byte_lm
