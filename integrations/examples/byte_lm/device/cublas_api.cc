#include "integrations/examples/byte_lm/device/cublas_api.h"

#include "runtime/base/shared_library.h"

namespace kintsugi::byte_lm::device {
namespace {

// cublasGetProperty's numbers; unlike cublasGetVersion it needs no handle, and so no device.
constexpr int kMajor = 0, kMinor = 1, kPatch = 2;

}  // namespace

Result<std::shared_ptr<const CublasApi>> LoadCublas(const std::string& path) {
  const auto library = SharedLibrary::Open({.what = "cuBLAS",
                                            .usual = {"libcublas.so.13", "libcublas.so.12"},
                                            .variable = "KINTSUGI_CUBLAS_LIBRARY",
                                            .path = path});
  if (!library.ok()) return library.status();
  auto api = std::make_shared<CublasApi>();
  api->name = library->name();
  Status status;
  const auto need = [&](const char* symbol, auto& function) {
    if (!library->Bind(symbol, function) && status.ok())
      status = Status(StatusCode::kFailedPrecondition, "'" + library->name() + "' has no " + symbol +
                                                           ", which cuBLAS has from 12 on; set "
                                                           "KINTSUGI_CUBLAS_LIBRARY");
  };
  int (*get_property)(int, int*) = nullptr;
  need("cublasGetProperty", get_property);
  need("cublasCreate_v2", api->create);
  need("cublasDestroy_v2", api->destroy);
  need("cublasGetVersion_v2", api->get_version);
  need("cublasSetStream_v2", api->set_stream);
  need("cublasSetWorkspace_v2", api->set_workspace);
  need("cublasSetMathMode", api->set_math_mode);
  need("cublasSetAtomicsMode", api->set_atomics_mode);
  need("cublasGetStatusName", api->status_name);
  need("cublasSgemm_v2", api->sgemm);
  need("cublasSgemmStridedBatched", api->sgemm_strided_batched);
  KINTSUGI_RETURN_IF_ERROR(status);
  int number[3] = {};
  for (int part : {kMajor, kMinor, kPatch}) get_property(part, &number[part]);
  api->version = number[0] * 10000 + number[1] * 100 + number[2];
  if (api->version < kCublasVersionMin)
    return Status(StatusCode::kFailedPrecondition, "cuBLAS of '" + library->name() + "' is version number " +
                                                       std::to_string(api->version) + "; at least " +
                                                       std::to_string(kCublasVersionMin) + " is needed");
  return std::shared_ptr<const CublasApi>(std::move(api));
}

}  // namespace kintsugi::byte_lm::device
