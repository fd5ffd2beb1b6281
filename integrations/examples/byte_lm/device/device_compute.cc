#include "integrations/examples/byte_lm/device/device_compute.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kintsugi::byte_lm::device {
namespace {

template <typename Work>
Work Elements(size_t count, Work work) {
  work.count = count;
  return work;
}

float ScoreScale(const AttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.head_width)); }

// One head of every window, as a batch of matrices in a qkv array. `part`: 0 query, 1 key, 2 value.
template <typename Real>
MatrixRef<Real> HeadPart(const AttentionShape& s, int64_t head, int part, Real* qkv, bool transposed = false) {
  return {qkv + (head * 3 + part) * s.head_width, s.QkvColumns(), transposed, s.context * s.QkvColumns()};
}

template <typename Real>
MatrixRef<Real> HeadScores(const AttentionShape& s, int64_t head, Real* scores, bool transposed = false) {
  return {scores + head * s.context * s.context, s.context, transposed, s.heads * s.context * s.context};
}

template <typename Real>
MatrixRef<Real> HeadOut(const AttentionShape& s, int64_t head, Real* out) {
  return {out + head * s.head_width, s.OutColumns(), false, s.context * s.OutColumns()};
}

}  // namespace

DeviceCompute::~DeviceCompute() {
  if (scratch_) Free(scratch_);
}

bool DeviceCompute::Keep(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
  return status_.ok();
}

void DeviceCompute::Launch(const Kernel& kernel) {
  if (!status_.ok() || !Keep(stream_.device().Bind())) return;
  Keep(launcher_->Launch(kernel, stream_.handle()));
}

void DeviceCompute::Multiply(const ProductShape& shape, const MatrixRef<const float>& a,
                             const MatrixRef<const float>& b, const MatrixRef<float>& out) {
  if (status_.ok()) Keep(products_->Multiply(shape, a, b, out));
}

// ---- memory --------------------------------------------------------------------------------------------------------

void* DeviceCompute::Allocate(size_t size_bytes) {
  // Whole words, so that they can be zeroed as floats.
  const size_t words = (std::max<size_t>(size_bytes, 1) + sizeof(float) - 1) / sizeof(float);
  const CudaDevice& device = stream_.device();
  if (!status_.ok() || !Keep(device.Bind())) return nullptr;
  uint64_t at = 0;
  if (!Keep(device.Check(device.driver().memory_allocate(&at, words * sizeof(float)), "cuMemAlloc"))) return nullptr;
  Fill(words, 0.0f, reinterpret_cast<float*>(at));
  return reinterpret_cast<void*>(at);
}

void DeviceCompute::Free(void* data) {
  if (!stream_.device().Bind().ok()) return;
  // Kernels may still use it; where the wait fails the memory is left to the process's end.
  if (stream_.WaitThroughAbort("work before memory is freed").ok())
    stream_.device().driver().memory_free(reinterpret_cast<uint64_t>(data));
}

void DeviceCompute::Upload(void* to, const void* from, size_t size_bytes) {
  if (!status_.ok()) return;
  const Status copied = stream_.CopyToDevice(to, from, size_bytes);
  // An abort or a lost peer is no error of the device: the caller's next wait meets it again.
  if (copied.code() == StatusCode::kInternal) Keep(copied);
}

Status DeviceCompute::Download(void* to, const void* from, size_t size_bytes) {
  KINTSUGI_RETURN_IF_ERROR(status_);
  return stream_.CopyToHost(to, from, size_bytes);
}

Status DeviceCompute::Settle() {
  KINTSUGI_RETURN_IF_ERROR(status_);
  return stream_.Wait();
}

Status DeviceCompute::SettleThroughAbort() {
  KINTSUGI_RETURN_IF_ERROR(status_);
  return stream_.WaitThroughAbort("an optimizer update");
}

double* DeviceCompute::Scratch(size_t count) {
  if (count > scratch_count_) {
    if (scratch_) Free(std::exchange(scratch_, nullptr));
    scratch_ = static_cast<double*>(Allocate(count * sizeof(double)));
    scratch_count_ = scratch_ ? count : 0;
  }
  return scratch_;
}

// ---- layers --------------------------------------------------------------------------------------------------------

void DeviceCompute::LinearForward(const LinearShape& s, const float* x, const float* weight, const float* bias,
                                  float* y) {
  Multiply({s.rows, s.outputs, s.inputs}, {x, s.inputs}, {weight, s.inputs, true}, {y, s.outputs});
  if (bias) AddBias(s.rows, s.outputs, bias, y);
}

void DeviceCompute::LinearInputGradient(const LinearShape& s, const float* dy, const float* weight, float* dx) {
  Multiply({s.rows, s.inputs, s.outputs}, {dy, s.outputs}, {weight, s.inputs}, {dx, s.inputs});
}

void DeviceCompute::LinearWeightGradient(const LinearShape& s, const float* x, const float* dy, float* dweight,
                                         float* dbias) {
  Multiply({s.outputs, s.inputs, s.rows}, {dy, s.outputs, true}, {x, s.inputs}, {dweight, s.inputs});
  if (dbias) ColumnSums(s.rows, s.outputs, dy, nullptr, dbias, nullptr);
}

void DeviceCompute::AddBias(int64_t rows, int64_t columns, const float* bias, float* y) {
  Launch(Elements(static_cast<size_t>(rows * columns), AddBiasKernel{{}, static_cast<uint64_t>(columns), bias, y}));
}

void DeviceCompute::ColumnSums(int64_t rows, int64_t columns, const float* x, const float* factor, float* sum,
                               float* product_sum) {
  Launch(ColumnSumsKernel{static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), x, factor, sum, product_sum});
}

void DeviceCompute::LayerNormForward(int64_t rows, int64_t columns, float epsilon, const float* x, const float* weight,
                                     const float* bias, const NormMemory<float>& memory, float* y) {
  Launch(LayerNormForwardKernel{static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), epsilon, x, weight, bias,
                                memory.normalized, memory.inverse_deviation, y});
}

void DeviceCompute::LayerNormBackward(int64_t rows, int64_t columns, const float* dy, const float* weight,
                                      const NormMemory<float>& memory, float* dx, float* dweight, float* dbias) {
  ColumnSums(rows, columns, dy, memory.normalized, dbias, dweight);
  Launch(LayerNormInputGradientKernel{static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), dy, weight,
                                      memory.normalized, memory.inverse_deviation, dx});
}

void DeviceCompute::GeluForward(int64_t count, const float* x, float* tanh_memory, float* y) {
  Launch(Elements(static_cast<size_t>(count), GeluForwardKernel{{}, x, tanh_memory, y}));
}

void DeviceCompute::GeluBackward(int64_t count, const float* x, const float* tanh_memory, const float* dy, float* dx) {
  Launch(Elements(static_cast<size_t>(count), GeluBackwardKernel{{}, x, tanh_memory, dy, dx}));
}

// ---- attention -----------------------------------------------------------------------------------------------------

void DeviceCompute::AttentionForward(const AttentionShape& s, const float* qkv, float* probabilities, float* out) {
  for (int64_t head = 0; head < s.heads; ++head)
    Multiply({s.context, s.context, s.head_width, s.batch}, HeadPart(s, head, 0, qkv), HeadPart(s, head, 1, qkv, true),
             HeadScores(s, head, probabilities));
  Launch(CausalSoftmaxKernel{static_cast<uint64_t>(s.batch * s.heads * s.context), static_cast<uint64_t>(s.context),
                             ScoreScale(s), probabilities});
  for (int64_t head = 0; head < s.heads; ++head)
    Multiply({s.context, s.head_width, s.context, s.batch}, HeadScores<const float>(s, head, probabilities),
             HeadPart(s, head, 2, qkv), HeadOut(s, head, out));
}

void DeviceCompute::AttentionBackward(const AttentionShape& s, const float* qkv, const float* probabilities,
                                      const float* dout, float* scratch, float* dqkv) {
  for (int64_t head = 0; head < s.heads; ++head) {
    Multiply({s.context, s.head_width, s.context, s.batch}, HeadScores(s, head, probabilities, true),
             HeadOut(s, head, dout), HeadPart(s, head, 2, dqkv));
    Multiply({s.context, s.context, s.head_width, s.batch}, HeadOut(s, head, dout), HeadPart(s, head, 2, qkv, true),
             HeadScores(s, head, scratch));
  }
  Launch(CausalSoftmaxGradientKernel{static_cast<uint64_t>(s.batch * s.heads * s.context),
                                     static_cast<uint64_t>(s.context), ScoreScale(s), probabilities, scratch});
  for (int64_t head = 0; head < s.heads; ++head) {
    Multiply({s.context, s.head_width, s.context, s.batch}, HeadScores<const float>(s, head, scratch),
             HeadPart(s, head, 1, qkv), HeadPart(s, head, 0, dqkv));
    Multiply({s.context, s.head_width, s.context, s.batch}, HeadScores<const float>(s, head, scratch, true),
             HeadPart(s, head, 0, qkv), HeadPart(s, head, 1, dqkv));
  }
}

// ---- embedding and loss --------------------------------------------------------------------------------------------

void DeviceCompute::EmbedForward(const EmbeddingShape& s, const uint8_t* inputs, const float* token,
                                 const float* position, float* out) {
  Launch(Elements(
      static_cast<size_t>(s.positions * s.width),
      EmbedForwardKernel{
          {}, static_cast<uint64_t>(s.context), static_cast<uint64_t>(s.width), inputs, token, position, out}));
}

void DeviceCompute::EmbedBackward(const EmbeddingShape& s, const uint8_t* inputs, const float* dout, float* dtoken,
                                  float* dposition) {
  const auto rows = static_cast<uint64_t>(s.positions), width = static_cast<uint64_t>(s.width);
  Launch(Elements(static_cast<size_t>(s.vocabulary * s.width),
                  TokenGradientKernel{{}, rows, width, inputs, dout, dtoken}));
  Launch(Elements(static_cast<size_t>(s.context * s.width),
                  PositionGradientKernel{{}, rows, static_cast<uint64_t>(s.context), width, dout, dposition}));
}

void DeviceCompute::CrossEntropy(int64_t rows, int64_t vocabulary, const float* logits, const uint8_t* targets,
                                 float* dlogits, double* loss) {
  const auto count = static_cast<uint64_t>(rows);
  double* const row_loss = Scratch(count);
  Launch(CrossEntropyKernel{count, static_cast<uint64_t>(vocabulary), logits, targets, dlogits, row_loss});
  Launch(SumKernel{count, static_cast<double>(rows), row_loss, loss});
}

// ---- elements ------------------------------------------------------------------------------------------------------

void DeviceCompute::FillMask(const DropoutDraws& draws, double probability, size_t count, float* mask) {
  Launch(Elements((count + 1) / 2, MaskKernel{{}, count, draws, static_cast<float>(1.0 / (1.0 - probability)), mask}));
}
void DeviceCompute::Fill(size_t count, float value, float* out) { Launch(Elements(count, FillKernel{{}, value, out})); }
void DeviceCompute::Copy(size_t count, const float* from, float* to) {
  if (from != to) Launch(Elements(count, CopyKernel{{}, from, to}));
}
void DeviceCompute::Scale(size_t count, float factor, float* values) {
  Launch(Elements(count, ScaleKernel{{}, factor, values}));
}
void DeviceCompute::Add(size_t count, const float* x, float* sum) { Launch(Elements(count, AddKernel{{}, x, sum})); }
void DeviceCompute::AddProduct(size_t count, const float* x, const float* factor, float* sum) {
  Launch(Elements(count, AddProductKernel{{}, x, factor, sum}));
}
void DeviceCompute::Product(size_t count, const float* x, const float* factor, float* out) {
  Launch(Elements(count, ProductKernel{{}, x, factor, out}));
}
void DeviceCompute::Narrow(const double* from, float* to) { Launch(Elements(1, NarrowKernel{{}, from, to})); }

// ---- optimizer -----------------------------------------------------------------------------------------------------

void DeviceCompute::SumOfSquares(size_t count, const float* values, double* sum) {
  const uint64_t blocks = SquaresKernel::BlocksFor(count);
  double* const partial = Scratch(SquaresKernel::kBlocksMax);
  Launch(SquaresKernel{count, values, partial, blocks});
  Launch(SumKernel{blocks, 1.0, partial, sum});
}

void DeviceCompute::AdamUpdate(const AdamConstants<float>& constants, size_t count, const float* gradient,
                               float* master, float* exp_avg, float* exp_avg_sq) {
  Launch(Elements(count, AdamKernel{{}, constants, gradient, master, exp_avg, exp_avg_sq}));
}

}  // namespace kintsugi::byte_lm::device
