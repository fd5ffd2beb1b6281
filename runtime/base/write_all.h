// WriteAll: all bytes to a descriptor, whatever pieces it takes them in.
//
// Errors: an errno; 0: all is written. A descriptor that takes nothing is a full disk.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace kintsugi {

inline int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    if (size == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return 0;
}

}  // namespace kintsugi
