// MappedFile: a file of a checkpoint, opened once, read through a mapping.
//
// What: a regular file, never what a symbolic link names, mapped read-only as a whole; a small one is read into memory
// instead, since a process has 65,530 maps (vm.max_map_count) and some checkpoints have more files. Its length, time of change and
// identity are kept, so that a file that changed while it was read is found out before anything made of it is
// published. A file that another process cuts short while it is mapped raises SIGBUS in a process that reads behind its
// end: a program that reads foreign folders says so in its own handler (tools/cli).
// Errors: kResourceExhausted says so where the maps ran out; else as FileSystem (replica/save/file_system.h); kDataLoss for a changed file.
// Units: bytes.
// Threads: any.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::formats {

class MappedFile {
 public:
  // `name` is what messages and catalogs call it. A symbolic link is followed within its folder, and from a snapshot of
  // Hugging Face's cache (REPOSITORY/snapshots/REVISION) within the repository; one that leads out of it is refused.
  // Up to here a file is read.
  static constexpr uint64_t kSmallBytes = uint64_t{64} << 10;
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path, std::string name);
  // Bytes that lie in no file of their own, under a name for messages.
  static std::shared_ptr<const MappedFile> Holding(std::string name, std::string_view bytes);
  // What `file` holds in another form, kept in memory.
  static std::shared_ptr<const MappedFile> Unpacked(const MappedFile& file, std::unique_ptr<uint8_t[]> bytes,
                                                    uint64_t size_bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  std::span<const uint8_t> bytes() const { return {data_, size_bytes_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_bytes_}; }
  Status CheckUnchanged() const;
  void DropPages() const;

 private:
  MappedFile(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}

  Status Load(int fd);

  const std::string path_, name_;
  std::unique_ptr<uint8_t[]> copy_;  // of a small file, or bytes of none; else it is mapped
  const uint8_t* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  struct stat seen_ {};
};

// A folder or a regular file, or neither.
enum class PathKind { kNothing, kFolder, kFile };
PathKind KindOfPath(const std::string& path);
bool IsFile(const std::string& path);
bool IsLink(const std::string& path);
// What somebody who named this path means: a link to a file is followed wherever it leads, unless its own name alone has the
// ending that tells what it is.
std::string FollowNamedLink(const std::string& path);
// Where a file lies that a checkpoint's own text names. kInvalidArgument: a folder on the way is a link.
Result<std::string> PlaceIn(const std::string& folder, const std::string& file);
// Names in a folder, sorted.
Result<std::vector<std::string>> SortedNames(const std::string& folder);

}  // namespace kintsugi::formats
