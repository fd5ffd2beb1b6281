// DeviceCompute: the compute interface on a CUDA device: cuBLAS for products, the kernels of this folder for the rest,
// all on one stream.
//
// Threads: the trainer's; status and errors as compute.h says.
// Ownership: owns its scratch; the stream outlives it.
// Invariants: every sum is made in an order that depends on shapes alone; memory of a scratch is reused in stream
// order.
#pragma once

#include <memory>

#include "integrations/examples/byte_lm/compute.h"
#include "integrations/examples/byte_lm/device/device_stream.h"
#include "integrations/examples/byte_lm/device/kernel_launcher.h"
#include "integrations/examples/byte_lm/device/matrix_products.h"

namespace kintsugi::byte_lm::device {

class DeviceCompute final : public Compute<float> {
 public:
  DeviceCompute(DeviceStream& stream, std::shared_ptr<const KernelLauncher> launcher,
                std::unique_ptr<MatrixProducts> products)
      : stream_(stream), launcher_(std::move(launcher)), products_(std::move(products)) {}
  ~DeviceCompute() override;

  DeviceStream& stream() { return stream_; }
  void Launch(const Kernel& kernel);

  void* Allocate(size_t size_bytes) override;
  void Free(void* data) override;
  void Upload(void* to, const void* from, size_t size_bytes) override;
  Status Download(void* to, const void* from, size_t size_bytes) override;
  Status Settle() override;
  Status SettleThroughAbort() override;
  Status status() const override { return status_; }

  void LinearForward(const LinearShape& s, const float* x, const float* weight, const float* bias, float* y) override;
  void LinearInputGradient(const LinearShape& s, const float* dy, const float* weight, float* dx) override;
  void LinearWeightGradient(const LinearShape& s, const float* x, const float* dy, float* dweight,
                            float* dbias) override;
  void AddBias(int64_t rows, int64_t columns, const float* bias, float* y) override;
  void LayerNormForward(int64_t rows, int64_t columns, float epsilon, const float* x, const float* weight,
                        const float* bias, const NormMemory<float>& memory, float* y) override;
  void LayerNormBackward(int64_t rows, int64_t columns, const float* dy, const float* weight,
                         const NormMemory<float>& memory, float* dx, float* dweight, float* dbias) override;
  void GeluForward(int64_t count, const float* x, float* tanh_memory, float* y) override;
  void GeluBackward(int64_t count, const float* x, const float* tanh_memory, const float* dy, float* dx) override;

  size_t AttentionScratch(const AttentionShape& s) const override { return static_cast<size_t>(s.ProbabilityCount()); }
  void AttentionForward(const AttentionShape& s, const float* qkv, float* probabilities, float* out) override;
  void AttentionBackward(const AttentionShape& s, const float* qkv, const float* probabilities, const float* dout,
                         float* scratch, float* dqkv) override;

  void EmbedForward(const EmbeddingShape& s, const uint8_t* inputs, const float* token, const float* position,
                    float* out) override;
  void EmbedBackward(const EmbeddingShape& s, const uint8_t* inputs, const float* dout, float* dtoken,
                     float* dposition) override;
  void CrossEntropy(int64_t rows, int64_t vocabulary, const float* logits, const uint8_t* targets, float* dlogits,
                    double* loss) override;

  void FillMask(const DropoutDraws& draws, double probability, size_t count, float* mask) override;
  void Fill(size_t count, float value, float* out) override;
  void Copy(size_t count, const float* from, float* to) override;
  void Scale(size_t count, float factor, float* values) override;
  void Add(size_t count, const float* x, float* sum) override;
  void AddProduct(size_t count, const float* x, const float* factor, float* sum) override;
  void Product(size_t count, const float* x, const float* factor, float* out) override;
  void Narrow(const double* from, float* to) override;

  void SumOfSquares(size_t count, const float* values, double* sum) override;
  void AdamUpdate(const AdamConstants<float>& constants, size_t count, const float* gradient, float* master,
                  float* exp_avg, float* exp_avg_sq) override;

 private:
  void Multiply(const ProductShape& shape, const MatrixRef<const float>& a, const MatrixRef<const float>& b,
                const MatrixRef<float>& out);
  void ColumnSums(int64_t rows, int64_t columns, const float* x, const float* factor, float* sum, float* product_sum);
  // Numbers for partial sums; null after an error.
  double* Scratch(size_t count);
  // Keeps the first error; whether there is none.
  bool Keep(const Status& status);

  DeviceStream& stream_;
  const std::shared_ptr<const KernelLauncher> launcher_;
  const std::unique_ptr<MatrixProducts> products_;
  double* scratch_ = nullptr;
  size_t scratch_count_ = 0;
  Status status_;
};

}  // namespace kintsugi::byte_lm::device
