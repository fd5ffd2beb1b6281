#include "replica/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "replica/save/file_system.h"

namespace kintsugi::formats {

using checkpoint::FileError;

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path, std::string name) {
  // O_NONBLOCK: a pipe under that name must not hang the reader.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ELOOP)
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is a symbolic link: name the file itself");
  if (fd < 0) return FileError(errno, "open", path);
  std::shared_ptr<MappedFile> file(new MappedFile(path, std::move(name)));
  if (::fstat(fd, &file->seen_) != 0) {
    const int error = errno;
    ::close(fd);
    return FileError(error, "look at", path);
  }
  if (!S_ISREG(file->seen_.st_mode)) {
    ::close(fd);
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is not a regular file");
  }
  file->size_bytes_ = static_cast<uint64_t>(file->seen_.st_size);
  void* data = nullptr;
  if (file->size_bytes_ > 0) data = ::mmap(nullptr, file->size_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return FileError(error, "map", path, file->size_bytes_);
  file->data_ = static_cast<const uint8_t*>(data);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

Status MappedFile::CheckUnchanged() const {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return FileError(errno, "look again at", path_);
  if (now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev && now.st_size == seen_.st_size &&
      now.st_mtim.tv_sec == seen_.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec)
    return Status::Ok();
  return {StatusCode::kDataLoss, "'" + path_ + "' was changed while it was read (" + std::to_string(seen_.st_size) +
                                     " bytes before, " + std::to_string(now.st_size) +
                                     " now): nothing was published; convert again when nobody writes there"};
}

void MappedFile::DropPages() const {
  if (data_) ::madvise(const_cast<uint8_t*>(data_), size_bytes_, MADV_DONTNEED);
}

PathKind KindOfPath(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return PathKind::kNothing;
  if (S_ISDIR(info.st_mode)) return PathKind::kFolder;
  return S_ISREG(info.st_mode) ? PathKind::kFile : PathKind::kNothing;
}

bool IsLink(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

bool IsFile(const std::string& path) { return KindOfPath(path) == PathKind::kFile; }

Result<std::vector<std::string>> SortedNames(const std::string& folder) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> names, checkpoint::PosixFileSystem().List(folder));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kintsugi::formats
