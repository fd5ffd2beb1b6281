// SharedBuffer: state memory that another process of this host can map.
//
// It lies in an anonymous memfd, so that nothing stays behind whatever kills the process. The file can neither shrink nor
// grow: a peer that maps it is never hit by a bus error.
// Ownership: owns the mapping and the descriptor; Memory made from it must not outlive it.
// Errors: kResourceExhausted.
#pragma once

#include <cstdint>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class KINTSUGI_EXPORT SharedBuffer {
 public:
  static Result<SharedBuffer> Allocate(uint64_t size_bytes);
  SharedBuffer() = default;
  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;
  ~SharedBuffer();

  uint8_t* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  int fd() const { return fd_; }
  // REQUIRES: offset + size_bytes <= size_bytes().
  Memory Slice(uint64_t offset, uint64_t size_bytes) const;

 private:
  int fd_ = -1;
  uint8_t* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace kintsugi
