// PeerMemory: maps memfds of another process of this host.
//
// Threads: one.
// Ownership: keeps what it mapped until it is destroyed.
// Errors: kFailedPrecondition where a file cannot be mapped; the sender then takes another way.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/base/result.h"

namespace kintsugi {

// Which file a descriptor number of the peer means; numbers are used again, inodes are not while the file is open.
struct FileIdentity {
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t device = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

// Identity of one of our own descriptors; inode 0 when it is not an open file.
FileIdentity IdentifyFile(int fd);

class PeerMemory {
 public:
  explicit PeerMemory(pid_t peer) : peer_(peer) {}
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Address in this process of `size_bytes` at `offset` of the peer's file. Only files sealed against shrinking are mapped.
  Result<const uint8_t*> Map(const FileIdentity& file, uint64_t offset, uint64_t size_bytes);
  // Lets the kernel fill in the page tables of a range that is about to be read, in one go instead of fault by fault.
  static void Populate(const uint8_t* data, uint64_t size_bytes);

 private:
  struct Mapping {
    const uint8_t* data = nullptr;
    uint64_t size_bytes = 0;
  };
  Result<Mapping> Open(const FileIdentity& file);

  const pid_t peer_;
  std::map<FileIdentity, Mapping> mappings_;
};

}  // namespace kintsugi
