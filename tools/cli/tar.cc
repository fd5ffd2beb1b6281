#include "tools/cli/tar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <numeric>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::cli {
namespace {

constexpr size_t kBlockBytes = 512;
constexpr size_t kPieceBytes = 1 << 20;

using Block = std::array<char, kBlockBytes>;

void PutOctal(Block* block, size_t at, size_t width, uint64_t number) {
  std::snprintf(block->data() + at, width, "%0*llo", static_cast<int>(width) - 1,
                static_cast<unsigned long long>(number));
}

}  // namespace

Status TarFile::Open(const std::string& path) {
  path_ = path;
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return {StatusCode::kUnavailable, "'" + path + "' cannot be made: " + std::strerror(errno)};
  out_.open(path, std::ios::binary | std::ios::trunc);
  return State();
}

Status TarFile::State() const {
  if (out_.good()) return Status::Ok();
  return {StatusCode::kUnavailable, "'" + path_ + "' cannot be written: is its disk full?"};
}

Status TarFile::Header(const std::string& name, uint64_t size_bytes) {
  KINTSUGI_CHECK(!name.empty() && name.size() < 100 && size_bytes < uint64_t{1} << 33,
                 "an archive's entry '" + name + "'");
  Block block{};
  std::memcpy(block.data(), name.data(), name.size());
  PutOctal(&block, 100, 8, 0600);
  PutOctal(&block, 108, 8, 0);
  PutOctal(&block, 116, 8, 0);
  PutOctal(&block, 124, 12, size_bytes);
  PutOctal(&block, 136, 12, static_cast<uint64_t>(std::max<time_t>(std::time(nullptr), 0)));
  std::memset(block.data() + 148, ' ', 8);  // as if the sum were blanks
  block[156] = '0';
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  const unsigned sum = std::accumulate(block.begin(), block.end(), 0u, [](unsigned total, char byte) {
    return total + static_cast<unsigned char>(byte);
  });
  PutOctal(&block, 148, 7, sum);
  out_.write(block.data(), kBlockBytes);
  return State();
}

Status TarFile::Pad(uint64_t size_bytes) {
  const Block nothing{};
  out_.write(nothing.data(), static_cast<std::streamsize>((kBlockBytes - size_bytes % kBlockBytes) % kBlockBytes));
  return State();
}

Status TarFile::Add(const std::string& name, std::string_view content) {
  KINTSUGI_RETURN_IF_ERROR(Header(name, content.size()));
  out_.write(content.data(), static_cast<std::streamsize>(content.size()));
  return Pad(content.size());
}

Status TarFile::AddFile(const std::string& name, const std::string& file, uint64_t bytes_max) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0)
    return {StatusCode::kUnavailable, "'" + file + "' cannot be read: " + std::strerror(errno)};
  if (!S_ISREG(found.st_mode)) return {StatusCode::kUnavailable, "'" + file + "' is no file"};
  const uint64_t size = std::min(static_cast<uint64_t>(found.st_size), bytes_max);
  uint64_t at = static_cast<uint64_t>(found.st_size) - size;
  KINTSUGI_RETURN_IF_ERROR(Header(name, size));
  std::vector<char> piece(kPieceBytes);
  for (uint64_t left = size; left > 0;) {
    const ssize_t got = ::pread(fd.get(), piece.data(), std::min<uint64_t>(left, kPieceBytes), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    // It has become shorter: what is missing is zero, so that the archive stays whole.
    const uint64_t taken = got > 0 ? static_cast<uint64_t>(got) : std::min<uint64_t>(left, kPieceBytes);
    if (got <= 0) std::fill(piece.begin(), piece.end(), '\0');
    out_.write(piece.data(), static_cast<std::streamsize>(taken));
    at += taken;
    left -= taken;
  }
  return Pad(size);
}

Status TarFile::Close() {
  const Block nothing{};
  for (int i = 0; i < 2; ++i) out_.write(nothing.data(), kBlockBytes);
  out_.close();
  return State();
}

}  // namespace kintsugi::cli
