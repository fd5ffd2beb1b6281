// AlignedBuffer: a fixed array of numbers on a 64-byte boundary, zero at first.
//
// Why aligned: vectorised loops treat the ends of a misaligned array by other instructions, which may round otherwise.
// With every array on the same boundary, two runs (and two ranks) take the same path to the same bits.
//
// Threads: a plain container.
// Ownership: owns its memory; moves leave the address of the contents unchanged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

namespace kintsugi::byte_lm {

inline constexpr size_t kAlignmentBytes = 64;

template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t count)
      : data_(static_cast<T*>(::operator new(std::max<size_t>(count, 1) * sizeof(T), kAlignment))), count_(count) {
    std::fill_n(data_, count_, T{});
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~AlignedBuffer() { ::operator delete(data_, kAlignment); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr std::align_val_t kAlignment{kAlignmentBytes};
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace kintsugi::byte_lm
