// SharedMemory: state memory in an anonymous memory file, so that another process of this host can map it and copy
// straight out of it. Nothing is left behind when the process is killed: the file has no name.
//
// Ownership: unmapped (but for borrowed memory) and closed with the object; registered tensors must not outlive it.
// Errors: kResourceExhausted names the size asked for; kInvalidArgument: a file that was handed over is no such file.
// Units: bytes; every allocation starts on a page.
#pragma once

#include <cstdint>

#include "callbacks/state/kept_memory.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

class KINTSUGI_EXPORT SharedMemory final : public KeptMemory {
 public:
  static Result<SharedMemory> Allocate(uint64_t size_bytes);
  // Maps a file that Allocate made, here or in another process.
  static Result<SharedMemory> Open(UniqueFd file);
  // Memory that somebody else has mapped, and will unmap after this object: all of the sealed memory file `file`, shared and
  // writable. kInvalidArgument where it is not that.
  static Result<SharedMemory> Borrow(void* data, uint64_t size_bytes, UniqueFd file);
  // Puts the bytes of `file` in place of these: same address, same descriptor, same size. Both processes' bytes are the
  // same from then on; what was here before is gone.
  Status Replace(const UniqueFd& file) override;
  ~SharedMemory() override;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // kind kShared; zero-filled where it was allocated.
  const Memory& memory() const override { return memory_; }

 private:
  explicit SharedMemory(const Memory& memory, bool borrowed = false) : memory_(memory), borrowed_(borrowed) {}
  void Release();
  Memory memory_;
  bool borrowed_;
};

// `size_bytes` of `memory` from `offset` on. REQUIRES: inside it.
KINTSUGI_EXPORT Memory SliceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes);

}  // namespace kintsugi
