#include "replica/stream/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace kintsugi {

FileIdentity IdentifyFile(int fd) {
  struct stat file{};
  if (fd < 0 || fstat(fd, &file) != 0) return {};
  return {.fd = fd, .inode = file.st_ino, .device = file.st_dev};
}

PeerMemory::Mapping::~Mapping() { munmap(const_cast<uint8_t*>(data), size_bytes); }

Result<std::unique_ptr<PeerMemory::Mapping>> PeerMemory::Open(const FileIdentity& file) {
  const std::string path = "/proc/" + std::to_string(peer_) + "/fd/" + std::to_string(file.fd);
  const auto refused = [&](const std::string& why) {
    return Status(StatusCode::kFailedPrecondition, "cannot map " + path + ": " + why);
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refused(std::strerror(errno));
  struct stat found{};
  const bool known = fstat(fd, &found) == 0;
  const int seals = fcntl(fd, F_GET_SEALS);
  void* data = MAP_FAILED;
  const uint64_t size = known ? static_cast<uint64_t>(found.st_size) : 0;
  const bool same = known && found.st_ino == file.inode && found.st_dev == file.device;
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (same && sealed && size > 0) data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (!same) return refused("it is another file by now");
  if (!sealed) return refused("it is not sealed against shrinking (F_SEAL_SHRINK)");
  if (data == MAP_FAILED) return refused(std::strerror(error));
  return std::make_unique<Mapping>(static_cast<const uint8_t*>(data), size);
}

Result<const uint8_t*> PeerMemory::Map(const FileIdentity& file, uint64_t offset, uint64_t size_bytes) {
  auto at = mappings_.find(file);
  if (at == mappings_.end()) {
    KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<Mapping> mapping, Open(file));
    at = mappings_.emplace(file, std::move(mapping)).first;
  }
  const Mapping& mapping = *at->second;
  if (offset > mapping.size_bytes || size_bytes > mapping.size_bytes - offset)
    return Status(StatusCode::kFailedPrecondition, "range lies outside the peer's file");
  const uint8_t* const at_offset = mapping.data + offset;
  pages_ahead_.Read(at_offset, size_bytes, mapping.data + mapping.size_bytes);
  return at_offset;
}

}  // namespace kintsugi
