#include "callbacks/state/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

Status Exhausted(const char* call, uint64_t size_bytes) {
  return {StatusCode::kResourceExhausted, std::string(call) + " of " + std::to_string(size_bytes) +
                                              " bytes of shared state memory: " + std::strerror(errno)};
}

// The size of a file that cannot shrink under a mapping.
Result<uint64_t> SealedSize(int fd) {
  struct stat file = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) != 0 || file.st_size <= 0)
    return Status(StatusCode::kInvalidArgument, "descriptor " + std::to_string(fd) + " is no sealed memory file");
  return static_cast<uint64_t>(file.st_size);
}

}  // namespace

Result<SharedMemory> SharedMemory::Open(UniqueFd file) {
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t size_bytes, SealedSize(file.get()));
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return Exhausted("mmap", size_bytes);
  return SharedMemory(Memory{data, size_bytes, MemoryKind::kShared, -1, file.Release(), 0});
}

Status SharedMemory::Replace(const UniqueFd& file) {
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t size_bytes, SealedSize(file.get()));
  const uint64_t mapped = memory_.size_bytes > 0 ? memory_.size_bytes : 1;
  if (size_bytes != mapped)
    return {StatusCode::kInvalidArgument,
            "a memory file of " + std::to_string(size_bytes) + " bytes in place of " + std::to_string(mapped)};
  if (mmap(memory_.data, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
    return Exhausted("mmap", mapped);
  if (dup3(file.get(), memory_.shared_fd, O_CLOEXEC) < 0) return Exhausted("dup3", mapped);
  return Status::Ok();
}

Result<SharedMemory> SharedMemory::Allocate(uint64_t size_bytes) {
  const int fd = memfd_create("kintsugi-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Exhausted("memfd_create", size_bytes);
  const uint64_t mapped = size_bytes > 0 ? size_bytes : 1;
  // Sealed against shrinking: a peer maps only such files, since a mapping of a file that shrinks is a bus error waiting.
  if (ftruncate(fd, static_cast<off_t>(mapped)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const Status failed = Exhausted("ftruncate", size_bytes);
    close(fd);
    return failed;
  }
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const Status failed = Exhausted("mmap", size_bytes);
    close(fd);
    return failed;
  }
  return SharedMemory(Memory{data, size_bytes, MemoryKind::kShared, -1, fd, 0});
}

void SharedMemory::Release() {
  if (!memory_.data) return;
  munmap(memory_.data, memory_.size_bytes > 0 ? memory_.size_bytes : 1);
  close(memory_.shared_fd);
  memory_ = {};
}

SharedMemory::~SharedMemory() { Release(); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    Release();
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

Memory SliceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes) {
  KINTSUGI_CHECK(offset <= memory.size_bytes && size_bytes <= memory.size_bytes - offset, "slice outside the memory");
  Memory slice = memory;
  slice.data = static_cast<uint8_t*>(memory.data) + offset;
  slice.size_bytes = size_bytes;
  if (slice.kind == MemoryKind::kShared) slice.shared_offset += offset;
  return slice;
}

}  // namespace kintsugi
