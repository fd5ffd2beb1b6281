// Compute: what the network and its optimizer do to arrays, one interface over host memory and a CUDA device.
//
// What: HostCompute() is the reference and works at once; a device's (device/device_compute.h) enqueues its work on one
// stream and goes on. Arrays lie in the memory of their Compute, also inputs and results; only Upload and Download know
// the host's. Matrices are row-major; shapes are those of layers.h and attention.h.
// Threads: one user at a time.
// Ownership: arrays are the caller's, on kAlignmentBytes, and do not overlap unless said.
// Errors: operations have none of their own. The first error of a device stays in status(), nothing is enqueued after
// it, and every wait (Download, Settle) gives it; an abort ends a wait with kCancelled and leaves status() alone.
// Invariants: equal inputs give equal bits on one kind of device; the host's bits are those of layers.h and its like. A
// device's differ from the host's in rounding.
// Real: float trains; double is what gradient checks use, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "integrations/examples/byte_lm/attention.h"
#include "integrations/examples/byte_lm/dropout_draw.h"
#include "integrations/examples/byte_lm/layers.h"
#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

class ComputeMemory {
 public:
  virtual ~ComputeMemory() = default;
  // Zeroed; null after an error.
  virtual void* Allocate(size_t size_bytes) = 0;
  virtual void Free(void* data) = 0;
  // `from` is the host's and may change once the call has returned.
  virtual void Upload(void* to, const void* from, size_t size_bytes) = 0;
  // Waits for what was asked for before; after an error `to` is left alone.
  virtual Status Download(void* to, const void* from, size_t size_bytes) = 0;
  // Waits until all that was asked for is done.
  virtual Status Settle() = 0;
  // The same, also through an abort: for work that ends by itself, such as an update.
  virtual Status SettleThroughAbort() = 0;
  virtual Status status() const = 0;
};

// An array in a Compute's memory, zero at first. A plain container; it may be moved.
template <typename T>
class ComputeArray {
 public:
  ComputeArray() = default;
  ComputeArray(ComputeMemory& memory, size_t count)
      : memory_(&memory), data_(static_cast<T*>(memory.Allocate(count * sizeof(T)))), count_(count) {}
  ComputeArray(ComputeArray&& other) noexcept { *this = std::move(other); }
  ComputeArray& operator=(ComputeArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~ComputeArray() {
    if (data_) memory_->Free(data_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }

 private:
  ComputeMemory* memory_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

struct EmbeddingShape {
  int64_t positions = 0;  // rows of the output: windows one behind the other
  int64_t context = 0;    // rows of a window
  int64_t vocabulary = 0;
  int64_t width = 0;
};

// The constants of one update of one parameter, rounded once.
template <typename Real>
struct AdamConstants {
  Real gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_correction1, inverse_correction2;
  Real epsilon, learning_rate, decay;
};

template <typename Real>
class Compute : public ComputeMemory {
 public:
  // ---- layers: as in layers.h
  virtual void LinearForward(const LinearShape& shape, const Real* x, const Real* weight, const Real* bias,
                             Real* y) = 0;
  virtual void LinearInputGradient(const LinearShape& shape, const Real* dy, const Real* weight, Real* dx) = 0;
  virtual void LinearWeightGradient(const LinearShape& shape, const Real* x, const Real* dy, Real* dweight,
                                    Real* dbias) = 0;
  virtual void AddBias(int64_t rows, int64_t columns, const Real* bias, Real* y) = 0;
  virtual void LayerNormForward(int64_t rows, int64_t columns, Real epsilon, const Real* x, const Real* weight,
                                const Real* bias, const NormMemory<Real>& memory, Real* y) = 0;
  virtual void LayerNormBackward(int64_t rows, int64_t columns, const Real* dy, const Real* weight,
                                 const NormMemory<Real>& memory, Real* dx, Real* dweight, Real* dbias) = 0;
  virtual void GeluForward(int64_t count, const Real* x, Real* tanh_memory, Real* y) = 0;
  virtual void GeluBackward(int64_t count, const Real* x, const Real* tanh_memory, const Real* dy, Real* dx) = 0;

  // ---- attention: as in attention.h, with a scratch of AttentionScratch elements
  virtual size_t AttentionScratch(const AttentionShape& shape) const = 0;
  virtual void AttentionForward(const AttentionShape& shape, const Real* qkv, Real* probabilities, Real* out) = 0;
  virtual void AttentionBackward(const AttentionShape& shape, const Real* qkv, const Real* probabilities,
                                 const Real* dout, Real* scratch, Real* dqkv) = 0;

  // ---- embedding and loss
  // out[i] = token[inputs[i]] + position[i % context].
  virtual void EmbedForward(const EmbeddingShape& shape, const uint8_t* inputs, const Real* token, const Real* position,
                            Real* out) = 0;
  // Overwrites both gradients; the terms of an element are added in the order of positions.
  virtual void EmbedBackward(const EmbeddingShape& shape, const uint8_t* inputs, const Real* dout, Real* dtoken,
                             Real* dposition) = 0;
  // *loss becomes the mean cross-entropy of `rows` rows of logits in nats, dlogits its gradient.
  virtual void CrossEntropy(int64_t rows, int64_t vocabulary, const Real* logits, const uint8_t* targets, Real* dlogits,
                            double* loss) = 0;

  // ---- elements
  virtual void FillMask(const DropoutDraws& draws, double probability, size_t count, Real* mask) = 0;
  virtual void Fill(size_t count, Real value, Real* out) = 0;
  virtual void Copy(size_t count, const Real* from, Real* to) = 0;
  virtual void Scale(size_t count, Real factor, Real* values) = 0;
  virtual void Add(size_t count, const Real* x, Real* sum) = 0;                             // sum += x
  virtual void AddProduct(size_t count, const Real* x, const Real* factor, Real* sum) = 0;  // sum += x * factor
  virtual void Product(size_t count, const Real* x, const Real* factor, Real* out) = 0;     // out may be x
  virtual void Narrow(const double* from, Real* to) = 0;                                    // one number

  // ---- optimizer
  virtual void SumOfSquares(size_t count, const Real* values, double* sum) = 0;  // one number, in double precision
  virtual void AdamUpdate(const AdamConstants<Real>& constants, size_t count, const Real* gradient, Real* master,
                          Real* exp_avg, Real* exp_avg_sq) = 0;
};

// On the calling thread, in host memory. It holds nothing, so that any thread may use it.
template <typename Real>
Compute<Real>& HostCompute();

}  // namespace kintsugi::byte_lm
