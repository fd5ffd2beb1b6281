// The per-job secret: 32 random bytes that every process of a job knows and nobody else. The launcher makes it and
// hands it down through a descriptor, never through the command line or the environment, which others can read.
//
// Threads: const after construction; any thread may use it.
// Ownership: the bytes live here only and are wiped when the object goes.
// Errors: kResourceExhausted (no descriptor, no randomness), kInvalidArgument (the descriptor holds something else).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::net {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kMacBytes = 32;
using Mac = std::array<uint8_t, kMacBytes>;

class Secret {
 public:
  static Result<std::shared_ptr<const Secret>> Generate();

  // Reads the secret from a memory file (from its start, even where another has read it) or a pipe. The descriptor
  // stays open: close it, so that the processes that the caller starts do not inherit it. Waits at most 2 s for a pipe.
  static Result<std::shared_ptr<const Secret>> FromFd(int fd);

  // A sealed memory file with the secret, close-on-exec; the caller owns it. To hand it down, clear the flag in the
  // child between fork and exec (or dup2 it there) and name its number in the child's environment.
  Result<int> ToFd() const;

  // HMAC-SHA256 (RFC 2104, FIPS 180-4) of the message under this secret.
  Mac Sign(std::string_view message) const;

  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

 private:
  Secret() = default;

  std::array<uint8_t, kSecretBytes> bytes_{};
};

// Compares in a time that does not depend on where the two differ.
bool SameMac(const Mac& expected, std::string_view received);

// Fills `size` bytes from the system's random generator.
Status FillRandom(void* data, size_t size);

}  // namespace kintsugi::net
