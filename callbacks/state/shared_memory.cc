#include "callbacks/state/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
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
    return Status(StatusCode::kInvalidArgument, "descriptor " + std::to_string(fd) +
                                                    " is no memory file that is sealed against shrinking "
                                                    "(memfd_create, F_SEAL_SHRINK)");
  return static_cast<uint64_t>(file.st_size);
}

// Whether these addresses are one mapping, shared and writable, of the file from its beginning.
bool IsMapped(uintptr_t begin, uint64_t size_bytes, const struct stat& file) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0, offset = 0, inode = 0;
    unsigned int major_number = 0, minor_number = 0;
    char modes[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu", &from, &to, modes, &offset, &major_number, &minor_number,
                    &inode) == 7 &&
        from == begin)
      return to - from >= size_bytes && std::string_view(modes) == "rw-s" && offset == 0 && inode == file.st_ino &&
             makedev(major_number, minor_number) == file.st_dev;
  }
  return false;
}

}  // namespace

Result<SharedMemory> SharedMemory::Borrow(void* data, uint64_t size_bytes, UniqueFd file) {
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t file_bytes, SealedSize(file.get()));
  const std::string what = "memory of " + std::to_string(size_bytes) + " bytes";
  if (file_bytes != size_bytes)
    return Status(StatusCode::kInvalidArgument,
                  what + " is not all of its memory file, which has " + std::to_string(file_bytes));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0 || !IsMapped(reinterpret_cast<uintptr_t>(data), size_bytes, status))
    return Status(StatusCode::kInvalidArgument, what +
                                                    " is no mapping of its memory file from the beginning, shared, "
                                                    "readable and writable (MAP_SHARED, PROT_READ | PROT_WRITE)");
  return SharedMemory(Memory{data, size_bytes, MemoryKind::kShared, -1, file.Release(), 0}, /*borrowed=*/true);
}

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
  if (!borrowed_) munmap(memory_.data, memory_.size_bytes > 0 ? memory_.size_bytes : 1);
  close(memory_.shared_fd);
  memory_ = {};
}

SharedMemory::~SharedMemory() { Release(); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), borrowed_(other.borrowed_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    Release();
    memory_ = std::exchange(other.memory_, {});
    borrowed_ = other.borrowed_;
  }
  return *this;
}

Memory SliceOf(const Memory& memory, uint64_t offset, uint64_t size_bytes) {
  KINTSUGI_CHECK(offset <= memory.size_bytes && size_bytes <= memory.size_bytes - offset, "slice outside the memory");
  Memory slice = memory;
  slice.data = static_cast<uint8_t*>(memory.data) + offset;
  slice.size_bytes = size_bytes;
  if (slice.shared_fd >= 0) slice.shared_offset += offset;
  return slice;
}

}  // namespace kintsugi
