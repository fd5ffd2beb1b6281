// PeerMemory: maps memfds of another process of this host.
//
// Threads: one.
// Ownership: keeps what it mapped until it is destroyed.
// Errors: kFailedPrecondition where a file cannot be mapped; the sender then takes another way.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "replica/stream/pages_ahead.h"
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

  // Address in this process of `size_bytes` at `offset` of the peer's file, which are read next. Only files sealed against
  // shrinking are mapped.
  Result<const uint8_t*> Map(const FileIdentity& file, uint64_t offset, uint64_t size_bytes);

 private:
  struct Mapping {
    Mapping(const uint8_t* address, uint64_t bytes) : data(address), size_bytes(bytes) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    const uint8_t* const data;
    const uint64_t size_bytes;
  };
  Result<std::unique_ptr<Mapping>> Open(const FileIdentity& file);

  const pid_t peer_;
  std::map<FileIdentity, std::unique_ptr<Mapping>> mappings_;
  PagesAhead pages_ahead_;  // ends before them, which it touches
};

}  // namespace kintsugi
