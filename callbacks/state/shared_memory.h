// SharedMemory: state memory in an anonymous memory file, so that another process of this host can map it and copy
// straight out of it. Nothing is left behind when the process is killed: the file has no name.
//
// Ownership: unmapped and closed with the object; registered tensors must not outlive it.
// Errors: kResourceExhausted names the size asked for.
// Units: bytes; every allocation starts on a page.
#pragma once

#include <cstdint>

#include "callbacks/state/descriptors.h"
#include "runtime/base/result.h"

namespace kintsugi {

class KINTSUGI_EXPORT SharedMemory {
 public:
  static Result<SharedMemory> Allocate(uint64_t size_bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // kind kShared, zero-filled.
  const Memory& memory() const { return memory_; }

 private:
  explicit SharedMemory(const Memory& memory) : memory_(memory) {}
  void Release();
  Memory memory_;
};

// `size_bytes` of `memory` from `offset` on. REQUIRES: inside it.
KINTSUGI_EXPORT Memory SliceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes);

}  // namespace kintsugi
