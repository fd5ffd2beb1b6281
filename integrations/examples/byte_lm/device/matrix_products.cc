#include "integrations/examples/byte_lm/device/matrix_products.h"

#include <climits>
#include <string>

namespace kintsugi::byte_lm::device {

Result<std::unique_ptr<MatrixProducts>> MatrixProducts::Make(std::shared_ptr<const CublasApi> api,
                                                             DeviceStream& stream) {
  std::unique_ptr<MatrixProducts> products(new MatrixProducts(api, stream));
  const CudaDevice& device = stream.device();
  KINTSUGI_RETURN_IF_ERROR(device.Bind());
  const auto check = [&](int result, const char* call) { return products->Check(result, call); };
  KINTSUGI_RETURN_IF_ERROR(check(api->create(&products->handle_), "cublasCreate"));
  KINTSUGI_RETURN_IF_ERROR(
      device.Check(device.driver().memory_allocate(&products->workspace_, kWorkspaceBytes), "cuMemAlloc"));
  // The workspace after the stream, which resets it.
  KINTSUGI_RETURN_IF_ERROR(check(api->set_stream(products->handle_, stream.handle()), "cublasSetStream"));
  KINTSUGI_RETURN_IF_ERROR(
      check(api->set_workspace(products->handle_, reinterpret_cast<void*>(products->workspace_), kWorkspaceBytes),
            "cublasSetWorkspace"));
  KINTSUGI_RETURN_IF_ERROR(check(api->set_math_mode(products->handle_, kCublasPedanticMath), "cublasSetMathMode"));
  KINTSUGI_RETURN_IF_ERROR(
      check(api->set_atomics_mode(products->handle_, kCublasAtomicsNotAllowed), "cublasSetAtomicsMode"));
  return products;
}

MatrixProducts::~MatrixProducts() {
  if (!stream_.device().Bind().ok()) return;
  if (handle_) api_->destroy(handle_);
  if (workspace_) stream_.device().driver().memory_free(workspace_);
}

Status MatrixProducts::Multiply(const ProductShape& s, const MatrixRef<const float>& a, const MatrixRef<const float>& b,
                                const MatrixRef<float>& out) {
  if (s.rows == 0 || s.columns == 0 || s.batch == 0) return Status::Ok();
  for (int64_t extent : {s.rows, s.columns, s.inner, s.batch, a.stride, b.stride, out.stride})
    if (extent < 0 || extent > INT_MAX)
      return {StatusCode::kInvalidArgument,
              "a matrix product of extent " + std::to_string(extent) + "; at most " + std::to_string(INT_MAX)};
  KINTSUGI_RETURN_IF_ERROR(stream_.device().Bind());
  const float one = 1.0f, zero = 0.0f;
  const auto as_int = [](int64_t value) { return static_cast<int>(value); };
  const auto operation = [](bool transposed) { return transposed ? kCublasTranspose : kCublasNoTranspose; };
  // What lies row by row is, read column by column, the transpose: out^T = b^T a^T.
  if (s.batch == 1)
    return Check(api_->sgemm(handle_, operation(b.transposed), operation(a.transposed), as_int(s.columns),
                             as_int(s.rows), as_int(s.inner), &one, b.data, as_int(b.stride), a.data, as_int(a.stride),
                             &zero, out.data, as_int(out.stride)),
                 "cublasSgemm");
  return Check(api_->sgemm_strided_batched(handle_, operation(b.transposed), operation(a.transposed), as_int(s.columns),
                                           as_int(s.rows), as_int(s.inner), &one, b.data, as_int(b.stride), b.next,
                                           a.data, as_int(a.stride), a.next, &zero, out.data, as_int(out.stride),
                                           out.next, as_int(s.batch)),
               "cublasSgemmStridedBatched");
}

Status MatrixProducts::Check(int result, const char* call) const {
  if (result == kCublasSuccess) return Status::Ok();
  return {StatusCode::kInternal, std::string(call) + ": " + api_->status_name(result) + " (" + std::to_string(result) +
                                     ") on CUDA device " + std::to_string(stream_.device().ordinal())};
}

}  // namespace kintsugi::byte_lm::device
