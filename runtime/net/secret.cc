#include "runtime/net/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::net {
namespace {

constexpr int kPipeWaitMs = 2000;

// pread leaves the offset alone, which all holders of an inherited memory file share; only pipes refuse it.
ssize_t ReadSome(int fd, uint8_t* data, size_t size, size_t offset) {
  const ssize_t got = ::pread(fd, data, size, static_cast<off_t>(offset));
  if (got >= 0 || errno != ESPIPE) return got;
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&waiting, 1, kPipeWaitMs);
  if (ready == 0) errno = ETIMEDOUT;
  return ready <= 0 ? -1 : ::read(fd, data, size);
}

}  // namespace

Status FillRandom(void* data, size_t size) {
  auto* out = static_cast<uint8_t*>(data);
  while (size > 0) {
    const ssize_t got = ::getrandom(out, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {StatusCode::kResourceExhausted, std::string("getrandom: ") + std::strerror(errno)};
    out += got;
    size -= static_cast<size_t>(got);
  }
  return Status::Ok();
}

Result<std::shared_ptr<const Secret>> Secret::Generate() {
  std::shared_ptr<Secret> secret(new Secret);
  KINTSUGI_RETURN_IF_ERROR(FillRandom(secret->bytes_.data(), secret->bytes_.size()));
  return std::shared_ptr<const Secret>(std::move(secret));
}

Result<std::shared_ptr<const Secret>> Secret::FromFd(int fd) {
  std::shared_ptr<Secret> secret(new Secret);
  size_t have = 0;
  while (have < kSecretBytes) {
    const ssize_t got = ReadSome(fd, secret->bytes_.data() + have, kSecretBytes - have, have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Status(StatusCode::kInvalidArgument,
                    "descriptor " + std::to_string(fd) + " does not hold the job's secret (" + std::to_string(have) +
                        " of " + std::to_string(kSecretBytes) + " bytes" +
                        (got < 0 ? std::string(", ") + std::strerror(errno) : std::string()) +
                        "): start this program through the launcher, which hands it down");
    }
    have += static_cast<size_t>(got);
  }
  return std::shared_ptr<const Secret>(std::move(secret));
}

Result<int> Secret::ToFd() const {
  UniqueFd fd(::memfd_create("kintsugi-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status(StatusCode::kResourceExhausted, std::string("memfd_create: ") + std::strerror(errno));
  if (::pwrite(fd.get(), bytes_.data(), bytes_.size(), 0) != static_cast<ssize_t>(bytes_.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return Status(StatusCode::kResourceExhausted, std::string("writing the secret: ") + std::strerror(errno));
  }
  return fd.Release();
}

Mac Secret::Sign(std::string_view message) const {
  Mac mac{};
  unsigned int length = 0;
  const unsigned char* done =
      ::HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(), &length);
  KINTSUGI_CHECK(done != nullptr && length == mac.size(), "HMAC-SHA256 failed in libcrypto");
  return mac;
}

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

bool SameMac(const Mac& expected, std::string_view received) {
  return received.size() == expected.size() && CRYPTO_memcmp(expected.data(), received.data(), expected.size()) == 0;
}

}  // namespace kintsugi::net
