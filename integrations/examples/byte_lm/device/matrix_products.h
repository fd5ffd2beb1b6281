// MatrixProducts: products of row-major matrices by cuBLAS, fixed so that equal inputs give equal bits.
//
// What: pedantic single precision (no TF32, no emulation), no atomics, one handle on one stream with a workspace of its
// own: what cuBLAS asks for to give the same bits on every run of one library version on one model of device.
// Threads: the stream's.
// Ownership: owns the handle and the workspace; the stream outlives it. REQUIRES at the end: nothing is under way.
// Errors: kInternal with cuBLAS's name and number.
#pragma once

#include <cstdint>
#include <memory>

#include "integrations/examples/byte_lm/device/cublas_api.h"
#include "integrations/examples/byte_lm/device/device_stream.h"

namespace kintsugi::byte_lm::device {

// A row-major matrix; rows lie `stride` elements apart. In a batch the next matrix starts `next` elements further on.
template <typename Real>
struct MatrixRef {
  Real* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;  // of an operand: the stored matrix's transpose is meant
  int64_t next = 0;
};

struct ProductShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  int64_t batch = 1;
};

class MatrixProducts {
 public:
  static Result<std::unique_ptr<MatrixProducts>> Make(std::shared_ptr<const CublasApi> api, DeviceStream& stream);
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // Enqueues out = a * b, for each of the batch.
  Status Multiply(const ProductShape& shape, const MatrixRef<const float>& a, const MatrixRef<const float>& b,
                  const MatrixRef<float>& out);

 private:
  MatrixProducts(std::shared_ptr<const CublasApi> api, DeviceStream& stream) : api_(std::move(api)), stream_(stream) {}
  Status Check(int result, const char* call) const;

  // What cuBLAS recommends for Hopper.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  const std::shared_ptr<const CublasApi> api_;
  DeviceStream& stream_;
  CublasHandle handle_ = nullptr;
  uint64_t workspace_ = 0;
};

}  // namespace kintsugi::byte_lm::device
