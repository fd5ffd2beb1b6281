#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>

#include "replica/save/file_system.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::checkpoint {
namespace {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

template <typename Call>
auto Retrying(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status Reserve(uint64_t size_bytes) override {
    if (size_bytes == 0) return Status::Ok();
    // Asked beforehand: running into the limit raises a signal that ends the host process.
    struct rlimit limit {};
    if (size_bytes > static_cast<uint64_t>(INT64_MAX) ||
        (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes > limit.rlim_cur))
      return FileError(EFBIG, "reserve", path_, size_bytes);
    // Not posix_fallocate: where the file system cannot reserve, that one writes a byte into every block.
    if (Retrying([&] { return ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size_bytes)); }) == 0)
      return Status::Ok();
    if (errno != EOPNOTSUPP && errno != ENOSYS) return FileError(errno, "reserve", path_, size_bytes);
    struct statvfs disk {};
    if (::fstatvfs(fd_.get(), &disk) == 0 && disk.f_bavail * disk.f_frsize < size_bytes)
      return FileError(ENOSPC, "reserve", path_, size_bytes);
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0)
      return FileError(errno, "reserve", path_, size_bytes);
    return Status::Ok();
  }

  Status Write(uint64_t offset, std::span<const Piece> pieces) override {
    std::vector<iovec> vectors;
    for (const Piece& piece : pieces)
      if (!piece.empty()) vectors.push_back({const_cast<uint8_t*>(piece.data()), piece.size()});
    size_t first = 0;
    while (first < vectors.size()) {
      const int count = static_cast<int>(std::min<size_t>(vectors.size() - first, IOV_MAX));
      const ssize_t wrote =
          Retrying([&] { return ::pwritev(fd_.get(), &vectors[first], count, static_cast<off_t>(offset)); });
      if (wrote < 0)
        return FileError(errno, "write at byte " + std::to_string(offset) + " of", path_, Left(vectors, first));
      offset += static_cast<uint64_t>(wrote);
      first = Advance(&vectors, first, static_cast<size_t>(wrote));
    }
    return Status::Ok();
  }

  void StartFlush(uint64_t offset, uint64_t size_bytes) override {
    ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size_bytes), SYNC_FILE_RANGE_WRITE);
  }

  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return FileError(errno, "sync", path_);
    return Status::Ok();
  }

 private:
  static uint64_t Left(const std::vector<iovec>& vectors, size_t first) {
    uint64_t left = 0;
    for (size_t i = first; i < vectors.size(); ++i) left += vectors[i].iov_len;
    return left;
  }
  // Drops `wrote` bytes from the front; returns the first vector that still has bytes.
  static size_t Advance(std::vector<iovec>* vectors, size_t first, size_t wrote) {
    while (wrote > 0) {
      KINTSUGI_CHECK(first < vectors->size(), "what was written is part of what was to be");
      iovec& vector = (*vectors)[first];
      const size_t part = std::min(wrote, vector.iov_len);
      vector.iov_base = static_cast<uint8_t*>(vector.iov_base) + part;
      vector.iov_len -= part;
      wrote -= part;
      if (vector.iov_len == 0) ++first;
    }
    return first;
  }

  Descriptor fd_;
  const std::string path_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status Prepare() {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return FileError(errno, "look at", path_);
    if (!S_ISREG(info.st_mode)) return {StatusCode::kInvalidArgument, "'" + path_ + "' is not a regular file"};
    size_bytes_ = static_cast<uint64_t>(info.st_size);
    ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    return Status::Ok();
  }
  uint64_t size_bytes() const override { return size_bytes_; }

  Status Read(uint64_t offset, void* data, uint64_t size_bytes) override {
    auto* at = static_cast<uint8_t*>(data);
    while (size_bytes > 0) {
      const ssize_t got = Retrying([&] { return ::pread(fd_.get(), at, size_bytes, static_cast<off_t>(offset)); });
      if (got < 0) return FileError(errno, "read at byte " + std::to_string(offset) + " of", path_);
      if (got == 0)
        return {StatusCode::kDataLoss, "'" + path_ + "' ends at byte " + std::to_string(offset) + ", " +
                                           std::to_string(size_bytes) + " bytes before it should"};
      at += got;
      offset += static_cast<uint64_t>(got);
      size_bytes -= static_cast<uint64_t>(got);
    }
    return Status::Ok();
  }

 private:
  Descriptor fd_;
  const std::string path_;
  uint64_t size_bytes_ = 0;
};

class Posix final : public FileSystem {
 public:
  Status MakeFolder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return SyncFolder(ParentOf(path));
    if (errno == EEXIST) {
      struct stat info {};
      if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return Status::Ok();
      return FileError(ENOTDIR, "make folder", path);
    }
    const std::string parent = ParentOf(path);
    if (errno != ENOENT || parent == path || parent == ".") return FileError(errno, "make folder", path);
    KINTSUGI_RETURN_IF_ERROR(MakeFolder(parent));
    // Another writer may make the same folder at this moment.
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return FileError(errno, "make folder", path);
    return SyncFolder(parent);
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(path, error), end;
    while (!error && entry != end) {
      names.push_back(entry->path().filename().string());
      entry.increment(error);
    }
    if (error) return FileError(error.value(), "list folder", path);
    return names;
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    // Removed first and then made exclusively: never written through a link, and a reader of the old file keeps it.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(errno, "replace", path);
    const int fd =
        Retrying([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644); });
    if (fd < 0) return FileError(errno, "create", path);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWritableFile>(fd, path));
  }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    // O_NONBLOCK: a pipe under that name must not hang the reader.
    const int fd = Retrying([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
    if (fd < 0) return FileError(errno, "open", path);
    auto file = std::make_unique<PosixReadableFile>(fd, path);
    KINTSUGI_RETURN_IF_ERROR(file->Prepare());
    return std::unique_ptr<ReadableFile>(std::move(file));
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return FileError(errno, "rename '" + from + "' to", to);
    return Status::Ok();
  }

  Status Exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return Status::Ok();
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
      return {StatusCode::kFailedPrecondition, "this file system cannot exchange '" + a + "' and '" + b + "'"};
    return FileError(errno, "exchange '" + a + "' with", b);
  }

  Status Remove(const std::string& path) override {
    // Another process may still add files to the folder or remove it as well: look again a few times.
    std::error_code error;
    for (int attempt = 0; attempt < 8; ++attempt) {
      std::filesystem::remove_all(path, error);
      if (!error || error.value() == ENOENT) return Status::Ok();
      if (error.value() != ENOTEMPTY) break;
    }
    return FileError(error.value(), "remove", path);
  }

  Status SyncFolder(const std::string& path) override {
    const Descriptor folder(Retrying([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (folder.get() < 0) return FileError(errno, "open folder", path);
    // Some network file systems have no sync of folders and say EINVAL; their metadata is synchronous.
    if (::fsync(folder.get()) != 0 && errno != EINVAL) return FileError(errno, "sync folder", path);
    return Status::Ok();
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix files;
  return files;
}

}  // namespace kintsugi::checkpoint
