#include "replica/stream/shared_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kintsugi {

Result<SharedBuffer> SharedBuffer::Allocate(uint64_t size_bytes) {
  SharedBuffer buffer;
  buffer.fd_ = memfd_create("kintsugi-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const auto failed = [&](const char* what) {
    return Status(StatusCode::kResourceExhausted, std::string(what) + " for " + std::to_string(size_bytes) +
                                                      " bytes of shared memory: " + std::strerror(errno));
  };
  if (buffer.fd_ < 0) return failed("memfd_create");
  if (ftruncate(buffer.fd_, static_cast<off_t>(size_bytes)) != 0) return failed("ftruncate");
  if (fcntl(buffer.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return failed("sealing");
  buffer.size_bytes_ = size_bytes;
  if (size_bytes == 0) return buffer;
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, buffer.fd_, 0);
  if (data == MAP_FAILED) return failed("mmap");
  buffer.data_ = static_cast<uint8_t*>(data);
  return buffer;
}

SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

SharedBuffer::~SharedBuffer() {
  if (data_) munmap(data_, size_bytes_);
  if (fd_ >= 0) close(fd_);
}

Memory SharedBuffer::Slice(uint64_t offset, uint64_t size_bytes) const {
  Memory memory;
  memory.data = data_ + offset;
  memory.size_bytes = size_bytes;
  memory.kind = MemoryKind::kShared;
  memory.shared_fd = fd_;
  memory.shared_offset = offset;
  return memory;
}

}  // namespace kintsugi
