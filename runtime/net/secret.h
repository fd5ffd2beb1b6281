// The per-job secret: 32 random bytes that every process of a job knows and nobody else. The launcher makes it and
// hands it down through a descriptor, never through the command line or the environment, which others can read.
//
// While one secret is changed for another a process knows both: it proves itself by the first and takes either
// (SecretFile).
//
// Threads: any.
// Ownership: the bytes live here only and are wiped when the object goes.
// Errors: kResourceExhausted (no descriptor, no randomness), kInvalidArgument (the descriptor holds something else).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/mutex.h"
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

  // What a file of so many bytes has: one secret, or of exactly 64 bytes two.
  static Result<std::shared_ptr<Secret>> FromFile(int fd, uint64_t file_bytes);
  // Knows what the other knows, and nothing else, from now on.
  void TakeFrom(const Secret& other);
  // All that it knows, each alone; the first is its own. A handshake keeps them, so that a change does not come between
  // its words.
  std::vector<std::shared_ptr<const Secret>> Known() const;

  // A sealed memory file with the secret, close-on-exec; the caller owns it. To hand it down, clear the flag in the
  // child between fork and exec (or dup2 it there) and name its number in the child's environment.
  Result<int> ToFd() const;

  // HMAC-SHA256 (RFC 2104, FIPS 180-4) of the message under this secret, the first where it knows two.
  Mac Sign(std::string_view message) const;

  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

 private:
  Secret() = default;

  using Bytes = std::array<uint8_t, kSecretBytes>;
  static Result<Bytes> Read(int fd, size_t offset);

  mutable Mutex mutex_;
  Bytes bytes_ KINTSUGI_GUARDED_BY(mutex_){};
  std::optional<Bytes> also_ KINTSUGI_GUARDED_BY(mutex_);
};

// Compares in a time that does not depend on where the two differ.
bool SameMac(const Mac& expected, std::string_view received);

// Fills `size` bytes from the system's random generator.
Status FillRandom(void* data, size_t size);

}  // namespace kintsugi::net
