#define XXH_INLINE_ALL
#include "integrations/examples/byte_lm/text_data.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::byte_lm {
namespace {

namespace fs = std::filesystem;

// All ranks of a host keep the whole text in memory.
constexpr uint64_t kBytesMax = uint64_t{4} << 30;

Status DataError(StatusCode code, const fs::path& path, const std::string& what) {
  return Status(code, "byte_lm: training text " + path.string() + ": " + what);
}

Status SystemError(const fs::path& path, int error) {
  StatusCode code = StatusCode::kInvalidArgument;
  if (error == ENOENT) code = StatusCode::kNotFound;
  if (error == EACCES || error == EPERM) code = StatusCode::kPermissionDenied;
  return DataError(code, path, std::string(std::strerror(error)) + "; give --data a readable file or directory");
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status AppendFile(const fs::path& path, std::string* bytes) {
  constexpr size_t kBlock = 256 * 1024;
  Descriptor file(path);
  if (file.get() < 0) return SystemError(path, errno);
  for (;;) {
    const size_t before = bytes->size();
    if (before > kBytesMax) {
      return DataError(StatusCode::kResourceExhausted, path, "the texts together exceed 4 GiB; give fewer files");
    }
    bytes->resize(before + kBlock);
    const ssize_t got = ::read(file.get(), bytes->data() + before, kBlock);
    const int error = errno;
    bytes->resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return Status::Ok();
    if (got < 0 && error != EINTR) return SystemError(path, error);
  }
}

Result<std::vector<fs::path>> FilesBelow(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error), end;
  while (!error && it != end) {
    if (it->is_regular_file(error) && !it->is_symlink(error)) files.push_back(it->path());
    if (!error) it.increment(error);
  }
  if (error) return SystemError(directory, error.value());
  std::sort(files.begin(), files.end());
  return files;
}

// The files that one path of the command line stands for.
Result<std::vector<fs::path>> Expand(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return SystemError(path, ENOENT);
  if (error) return SystemError(path, error.value());
  if (fs::is_directory(status)) return FilesBelow(path);
  if (fs::is_regular_file(status)) return std::vector<fs::path>{path};
  return DataError(StatusCode::kInvalidArgument, path,
                   "neither a regular file nor a directory; give --data files or directories");
}

}  // namespace

Result<TextData> TextData::Load(const std::vector<std::string>& paths) {
  TextData data;
  for (const fs::path path : paths.empty() ? std::vector<std::string>{kDefaultTextPath} : paths) {
    const uint64_t before = data.bytes_.size();
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<fs::path> files, Expand(path));
    for (const fs::path& file : files) {
      const uint64_t file_before = data.bytes_.size();
      KINTSUGI_RETURN_IF_ERROR(AppendFile(file, &data.bytes_));
      data.file_count_ += data.bytes_.size() > file_before;
    }
    if (data.bytes_.size() == before) {
      return DataError(StatusCode::kInvalidArgument, path, "holds no bytes; give --data a file with text in it");
    }
  }
  return data;
}

TextData TextData::FromBytes(std::string bytes) {
  TextData data;
  data.bytes_ = std::move(bytes);
  data.file_count_ = 1;
  return data;
}

uint64_t TextData::WindowCount(int64_t context) const {
  return bytes_.empty() ? 0 : (bytes_.size() - 1) / static_cast<uint64_t>(context);
}

std::span<const uint8_t> TextData::Window(uint64_t window, int64_t context) const {
  KINTSUGI_CHECK(window < WindowCount(context), "byte_lm: no such window of the training text");
  const uint8_t* first = reinterpret_cast<const uint8_t*>(bytes_.data());
  return {first + window * static_cast<uint64_t>(context), static_cast<size_t>(context) + 1};
}

uint64_t TextData::Fingerprint() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

}  // namespace kintsugi::byte_lm
