#include "replica/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "callbacks/state/key.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

using checkpoint::FileError;

namespace {

namespace fs = std::filesystem;

// The folder that links in `folder` may lead to files of: a snapshot's repository, else itself.
fs::path ReachOf(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path())
    if (at.parent_path().filename() == "snapshots") return at.parent_path().parent_path();
  return folder;
}

// Where the file lies that `path` is a link to.
Result<std::string> TargetOf(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is a symbolic link " + why);
  };
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) return refuse("that leads nowhere (" + error.message() + ")");
  const fs::path folder = fs::canonical(fs::path(checkpoint::ParentOf(path)), error);
  if (error) return refuse("in a folder that is none");
  const fs::path reach = ReachOf(folder);
  if (std::mismatch(reach.begin(), reach.end(), target.begin(), target.end()).first != reach.end())
    return refuse("that leads out of '" + reach.string() + "': name the file itself");
  return target.string();
}

// Of ENOMEM it is not memory that is short where a process has as many maps as it may.
Status MapError(int error, const std::string& path, uint64_t size_bytes) {
  if (error != ENOMEM) return FileError(error, "map", path, size_bytes);
  int64_t limit = 0, maps = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) ++maps;
  constexpr int64_t kOthers = 64;  // the kernel counts some that are not listed, and some fell away meanwhile
  if (limit == 0 || maps + kOthers < limit) return FileError(error, "map", path, size_bytes);
  return {StatusCode::kResourceExhausted,
          "cannot map '" + path + "': this process has " + std::to_string(maps) + " maps, of " + std::to_string(limit) +
              " that vm.max_map_count allows: the checkpoint is of too many large files; allow more (sysctl -w "
              "vm.max_map_count=" +
              std::to_string(limit * 16) + ")"};
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path, std::string name) {
  std::string target = path;
  if (IsLink(path)) {
    KINTSUGI_ASSIGN_OR_RETURN(target, TargetOf(path));
  }
  // O_NONBLOCK: a pipe under that name must not hang the reader.
  const int fd = ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ELOOP)
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is a symbolic link that was changed meanwhile");
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
  const Status loaded = file->Load(fd);
  ::close(fd);
  if (!loaded.ok()) return loaded;
  return std::shared_ptr<const MappedFile>(std::move(file));
}

std::shared_ptr<const MappedFile> MappedFile::Holding(std::string name, std::string_view bytes) {
  std::shared_ptr<MappedFile> file(new MappedFile("", std::move(name)));
  file->size_bytes_ = bytes.size();
  file->copy_ = std::make_unique<uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), file->copy_.get());
  file->data_ = file->copy_.get();
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::Unpacked(const MappedFile& file, std::unique_ptr<uint8_t[]> bytes,
                                                       uint64_t size_bytes) {
  KINTSUGI_CHECK(bytes != nullptr || size_bytes == 0,
                 "'" + file.path_ + "' was unpacked into " + std::to_string(size_bytes) + " bytes that are nowhere");
  std::shared_ptr<MappedFile> unpacked(new MappedFile(file.path_, file.name_));
  unpacked->seen_ = file.seen_;
  unpacked->size_bytes_ = size_bytes;
  unpacked->copy_ = std::move(bytes);
  unpacked->data_ = unpacked->copy_.get();
  return unpacked;
}

Status MappedFile::Load(int fd) {
  KINTSUGI_CHECK(data_ == nullptr, "'" + path_ + "' is loaded twice");
  if (size_bytes_ == 0) return Status::Ok();
  if (size_bytes_ > kSmallBytes) {
    void* const data = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return MapError(errno, path_, size_bytes_);
    data_ = static_cast<const uint8_t*>(data);
    return Status::Ok();
  }
  copy_ = std::make_unique<uint8_t[]>(size_bytes_);
  for (uint64_t at = 0; at < size_bytes_;) {
    const ssize_t got = ::pread(fd, copy_.get() + at, size_bytes_ - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path_);
    if (got == 0)
      return {StatusCode::kDataLoss, "'" + path_ + "' was cut short while it was read: " + std::to_string(at) + " of " +
                                         std::to_string(size_bytes_) + " bytes"};
    at += static_cast<uint64_t>(got);
  }
  data_ = copy_.get();
  return Status::Ok();
}

MappedFile::~MappedFile() {
  if (data_ && !copy_) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

Status MappedFile::CheckUnchanged() const {
  if (path_.empty()) return Status::Ok();
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
  if (data_ && !copy_) ::madvise(const_cast<uint8_t*>(data_), size_bytes_, MADV_DONTNEED);
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

std::string FollowNamedLink(const std::string& path) {
  if (!IsLink(path) || !IsFile(path)) return path;
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error || target.extension() != fs::path(path).extension() ? path : target.string();
}

Result<std::string> PlaceIn(const std::string& folder, const std::string& file) {
  for (size_t slash = file.find('/'); slash != std::string::npos; slash = file.find('/', slash + 1))
    if (const std::string way = checkpoint::Join(folder, file.substr(0, slash)); IsLink(way))
      return Status(StatusCode::kInvalidArgument, "'" + way + "' is a symbolic link to a folder, which '" +
                                                      PrintableKey(file) +
                                                      "' leads through: put the folder itself there");
  return checkpoint::Join(folder, file);
}

bool IsFile(const std::string& path) { return KindOfPath(path) == PathKind::kFile; }

Result<std::vector<std::string>> SortedNames(const std::string& folder) {
  KINTSUGI_ASSIGN_OR_RETURN(std::vector<std::string> names, checkpoint::PosixFileSystem().List(folder));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kintsugi::formats
