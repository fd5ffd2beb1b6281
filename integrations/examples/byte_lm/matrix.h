// Views of plain arrays as row-major matrices: the only header that includes Eigen, for the compute sources alone.
//
// Ownership: views own nothing.
// Invariants: products run on the calling thread (EIGEN_DONT_PARALLELIZE), with block sizes pinned by PinBlocking, so
// that a result does not depend on the caches of the machine it was computed on.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <mutex>

namespace kintsugi::byte_lm {

template <typename Real>
using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename Real>
using View = Eigen::Map<Matrix<Real>>;
template <typename Real>
using ConstView = Eigen::Map<const Matrix<Real>>;

// A block of columns of a wider row-major matrix: rows lie `stride` elements apart.
template <typename Real>
using Columns = Eigen::Map<Matrix<Real>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename Real>
using ConstColumns = Eigen::Map<const Matrix<Real>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <typename Real>
using RowVector = Eigen::Map<Eigen::Matrix<Real, 1, Eigen::Dynamic>>;
template <typename Real>
using ConstRowVector = Eigen::Map<const Eigen::Matrix<Real, 1, Eigen::Dynamic>>;

template <typename Real>
using Vector = Eigen::Map<Eigen::Array<Real, Eigen::Dynamic, 1>>;
template <typename Real>
using ConstVector = Eigen::Map<const Eigen::Array<Real, Eigen::Dynamic, 1>>;

// Fixes the cache sizes from which Eigen derives the blocks (and so the order of summation) of its products.
inline void PinBlocking() {
  static std::once_flag once;
  std::call_once(once, [] { Eigen::setCpuCacheSizes(32 * 1024, 1024 * 1024, 4 * 1024 * 1024); });
}

}  // namespace kintsugi::byte_lm
