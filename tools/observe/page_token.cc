#include "tools/observe/page_token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/unique_fd.h"

namespace kintsugi::observe {
namespace {

constexpr std::string_view kScheme = "Bearer ";

Status Wrong(const std::string& file, const std::string& what) {
  return {StatusCode::kInvalidArgument,
          "--page-token-file '" + file + "': " + what + "; make one with: (umask 077; openssl rand -hex 16 > FILE)"};
}

}  // namespace

bool PageToken::Is(std::string_view presented) const {
  return presented.size() == text_.size() && CRYPTO_memcmp(presented.data(), text_.data(), text_.size()) == 0;
}

bool PageToken::IsIn(std::string_view authorization) const {
  if (authorization.size() < kScheme.size()) return false;
  if (strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) return false;
  return Is(authorization.substr(kScheme.size()));
}

Result<PageToken> ReadPageToken(const std::string& file) {
  // A pipe would be waited for.
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) return Wrong(file, std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return Wrong(file, "it is not a file");
  if ((found.st_mode & 077) != 0)
    return Status(StatusCode::kInvalidArgument,
                  "--page-token-file '" + file + "' can be read by others than its owner: chmod 600 '" + file + "'");
  std::array<char, PageToken::kBytesMax + 3> bytes{};
  const ssize_t got = read(fd.get(), bytes.data(), bytes.size());
  if (got < 0) return Wrong(file, std::strerror(errno));
  std::string text(bytes.data(), static_cast<size_t>(got));
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  if (text.size() < PageToken::kBytesMin || text.size() > PageToken::kBytesMax)
    return Wrong(file, "a token has " + std::to_string(PageToken::kBytesMin) + " to " +
                           std::to_string(PageToken::kBytesMax) + " characters");
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; }))
    return Wrong(file, "a token is one line of letters, digits and signs, without spaces");
  return PageToken(std::move(text));
}

}  // namespace kintsugi::observe
