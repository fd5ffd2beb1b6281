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
  const MutexLock lock(secret->mutex_);
  KINTSUGI_RETURN_IF_ERROR(FillRandom(secret->bytes_.data(), secret->bytes_.size()));
  return std::shared_ptr<const Secret>(secret);
}

Result<Secret::Bytes> Secret::Read(int fd, size_t offset) {
  Bytes bytes{};
  size_t have = 0;
  while (have < kSecretBytes) {
    const ssize_t got = ReadSome(fd, bytes.data() + have, kSecretBytes - have, offset + have);
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
  return bytes;
}

Result<std::shared_ptr<const Secret>> Secret::FromFd(int fd) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<Secret> secret, FromFile(fd, kSecretBytes));
  return std::shared_ptr<const Secret>(secret);
}

Result<std::shared_ptr<Secret>> Secret::FromFile(int fd, uint64_t file_bytes) {
  std::shared_ptr<Secret> secret(new Secret);
  const MutexLock lock(secret->mutex_);
  KINTSUGI_ASSIGN_OR_RETURN(secret->bytes_, Read(fd, 0));
  if (file_bytes == 2 * kSecretBytes) {
    KINTSUGI_ASSIGN_OR_RETURN(secret->also_, Read(fd, kSecretBytes));
  }
  return secret;
}

void Secret::TakeFrom(const Secret& other) {
  Bytes bytes;
  std::optional<Bytes> also;
  {
    const MutexLock lock(other.mutex_);
    bytes = other.bytes_, also = other.also_;
  }
  const MutexLock lock(mutex_);
  bytes_ = bytes, also_ = also;
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (also) OPENSSL_cleanse(also->data(), also->size());
}

std::vector<std::shared_ptr<const Secret>> Secret::Known() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const Secret>> known;
  const auto add = [&known](const Bytes& bytes) {
    std::shared_ptr<Secret> one(new Secret);
    const MutexLock of_one(one->mutex_);
    one->bytes_ = bytes;
    known.push_back(one);
  };
  add(bytes_);
  if (also_) add(*also_);
  return known;
}

Result<int> Secret::ToFd() const {
  UniqueFd fd(::memfd_create("kintsugi-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status(StatusCode::kResourceExhausted, std::string("memfd_create: ") + std::strerror(errno));
  const MutexLock lock(mutex_);
  if (::pwrite(fd.get(), bytes_.data(), bytes_.size(), 0) != static_cast<ssize_t>(bytes_.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return Status(StatusCode::kResourceExhausted, std::string("writing the secret: ") + std::strerror(errno));
  }
  return fd.Release();
}

Mac Secret::Sign(std::string_view message) const {
  Mac mac{};
  unsigned int length = 0;
  const MutexLock lock(mutex_);
  const unsigned char* done =
      ::HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(), &length);
  KINTSUGI_CHECK(done != nullptr && length == mac.size(), "HMAC-SHA256 failed in libcrypto");
  return mac;
}

Secret::~Secret() {
  const MutexLock lock(mutex_);
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
  if (also_) OPENSSL_cleanse(also_->data(), also_->size());
}

bool SameMac(const Mac& expected, std::string_view received) {
  return received.size() == expected.size() && CRYPTO_memcmp(expected.data(), received.data(), expected.size()) == 0;
}

}  // namespace kintsugi::net
