// CublasApi: the functions of cuBLAS that byte_lm calls, found at run time, so that one program serves machines with
// and without it.
//
// What: the declarations are our own (as of cuBLAS 12 and 13; checked against the header of 13.0). Matrices are
// column-major there.
// Threads: a handle is one thread's.
// Errors: LoadCublas: kNotFound where there is no library, kFailedPrecondition where it is too old or not cuBLAS.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/result.h"

namespace kintsugi::byte_lm::device {

using CublasHandle = void*;

inline constexpr int kCublasSuccess = 0;
inline constexpr int kCublasNoTranspose = 0;
inline constexpr int kCublasTranspose = 1;
// Single precision as IEEE 754 says, without TF32, half precision or other emulations.
inline constexpr int kCublasPedanticMath = 2;
inline constexpr int kCublasAtomicsNotAllowed = 0;
inline constexpr int kCublasVersionMin = 120000;  // 10,000 major + 100 minor + patch

struct CublasApi {
  int version = 0;
  std::string name;  // of the library

  int (*create)(CublasHandle*) = nullptr;
  int (*destroy)(CublasHandle) = nullptr;
  int (*get_version)(CublasHandle, int*) = nullptr;
  int (*set_stream)(CublasHandle, void* stream) = nullptr;
  int (*set_workspace)(CublasHandle, void* workspace, size_t size_bytes) = nullptr;
  int (*set_math_mode)(CublasHandle, int mode) = nullptr;
  int (*set_atomics_mode)(CublasHandle, int mode) = nullptr;
  const char* (*status_name)(int) = nullptr;
  int (*sgemm)(CublasHandle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha, const float* a,
               int lda, const float* b, int ldb, const float* beta, float* c, int ldc) = nullptr;
  int (*sgemm_strided_batched)(CublasHandle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
                               const float* a, int lda, long long stride_a, const float* b, int ldb, long long stride_b,
                               const float* beta, float* c, int ldc, long long stride_c, int batch) = nullptr;
};

// The copy that the process has loaded already, else the file in KINTSUGI_CUBLAS_LIBRARY, else libcublas.so.13 or .12.
Result<std::shared_ptr<const CublasApi>> LoadCublas(const std::string& path = "");

}  // namespace kintsugi::byte_lm::device
