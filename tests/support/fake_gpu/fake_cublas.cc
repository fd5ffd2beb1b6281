// A fake libcublas for tests of the host's side: products on the fake device's streams, column-major as there. It ends
// the process on what the trainer promises not to do: a product before stream, workspace, math mode and atomics are
// set, or a workspace that a later stream has reset. It says nothing about a real cuBLAS.
#include <cstdio>
#include <cstdlib>

#include "tests/support/fake_gpu/fake_cuda.h"

namespace kintsugi::fake {
namespace {

struct Handle {
  Stream* stream = nullptr;
  void* workspace = nullptr;
  int math_mode = 0;
  int atomics = -1;
};

struct Operand {
  const float* data;
  int stride;
  long long next;
  bool transposed;
  float At(int row, int column) const {
    return transposed ? data[static_cast<long long>(row) * stride + column]
                      : data[static_cast<long long>(column) * stride + row];
  }
};

Stream& Ready(void* handle) {
  const auto& one = *static_cast<Handle*>(handle);
  if (one.stream && one.workspace && one.math_mode == 2 && one.atomics == 0) return *one.stream;
  std::fprintf(stderr, "fake cublas: a product on a handle that is not set up for equal bits\n");
  std::abort();
}

int Product(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha, Operand a,
            Operand b, const float* beta, float* c, int ldc, long long next_c, int batch) {
  // Leading dimensions are of what is stored.
  if (a.stride < (transpose_a ? k : m) || b.stride < (transpose_b ? n : k) || ldc < m) return 7;
  a.transposed = transpose_a != 0;
  b.transposed = transpose_b != 0;
  Ready(handle).Enqueue([=, factor = *alpha, kept = *beta]() mutable {
    for (int one = 0; one < batch; ++one, a.data += a.next, b.data += b.next, c += next_c)
      for (int column = 0; column < n; ++column)
        for (int row = 0; row < m; ++row) {
          float sum = 0;
          for (int inner = 0; inner < k; ++inner) sum += a.At(row, inner) * b.At(inner, column);
          float& out = c[static_cast<long long>(column) * ldc + row];
          out = factor * sum + (kept == 0 ? 0 : kept * out);
        }
  });
  return 0;
}

}  // namespace
}  // namespace kintsugi::fake

using namespace kintsugi::fake;

FAKE_GPU_EXPORT int cublasGetProperty(int part, int* value) { return *value = part == 0 ? 13 : 0, 0; }
FAKE_GPU_EXPORT int cublasCreate_v2(void** handle) { return *handle = new Handle, 0; }
FAKE_GPU_EXPORT int cublasDestroy_v2(void* handle) { return delete static_cast<Handle*>(handle), 0; }
FAKE_GPU_EXPORT int cublasGetVersion_v2(void*, int* version) { return *version = 130000, 0; }
FAKE_GPU_EXPORT int cublasSetStream_v2(void* handle, void* stream) {
  auto& one = *static_cast<Handle*>(handle);
  one.stream = static_cast<Stream*>(stream);
  one.workspace = nullptr;
  return 0;
}
FAKE_GPU_EXPORT int cublasSetWorkspace_v2(void* handle, void* workspace, size_t) {
  return static_cast<Handle*>(handle)->workspace = workspace, 0;
}
FAKE_GPU_EXPORT int cublasSetMathMode(void* handle, int mode) {
  return static_cast<Handle*>(handle)->math_mode = mode, 0;
}
FAKE_GPU_EXPORT int cublasSetAtomicsMode(void* handle, int mode) {
  return static_cast<Handle*>(handle)->atomics = mode, 0;
}
FAKE_GPU_EXPORT const char* cublasGetStatusName(int) { return "FAKE_STATUS"; }

FAKE_GPU_EXPORT int cublasSgemm_v2(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
                                   const float* alpha, const float* a, int lda, const float* b, int ldb,
                                   const float* beta, float* c, int ldc) {
  return Product(handle, transpose_a, transpose_b, m, n, k, alpha, {a, lda, 0, false}, {b, ldb, 0, false}, beta, c, ldc,
                 0, 1);
}
FAKE_GPU_EXPORT int cublasSgemmStridedBatched(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
                                              const float* alpha, const float* a, int lda, long long next_a,
                                              const float* b, int ldb, long long next_b, const float* beta, float* c,
                                              int ldc, long long next_c, int batch) {
  return Product(handle, transpose_a, transpose_b, m, n, k, alpha, {a, lda, next_a, false}, {b, ldb, next_b, false},
                 beta, c, ldc, next_c, batch);
}
