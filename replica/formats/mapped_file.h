// MappedFile: a file of a checkpoint, opened once, read through a mapping.
//
// What: a regular file, never what a symbolic link names, mapped read-only as a whole. Its length, time of change and
// identity are kept, so that a file that changed while it was read is found out before anything made of it is
// published. A file that another process cuts short while it is mapped raises SIGBUS in a process that reads behind its
// end: a program that reads foreign folders says so in its own handler (tools/cli).
// Errors: as FileSystem (replica/save/file_system.h); kDataLoss for a changed file.
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
  // `name` is what messages and catalogs call it.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path, std::string name);
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

  const std::string path_, name_;
  const uint8_t* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  struct stat seen_ {};
};

// A folder or a regular file, or neither.
enum class PathKind { kNothing, kFolder, kFile };
PathKind KindOfPath(const std::string& path);
bool IsFile(const std::string& path);
bool IsLink(const std::string& path);
// Names in a folder, sorted.
Result<std::vector<std::string>> SortedNames(const std::string& folder);

}  // namespace kintsugi::formats
