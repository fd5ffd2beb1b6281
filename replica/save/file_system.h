// FileSystem: the few file operations that saving and loading stand on, behind a seam, so that a test can fill the
// disk, fail any operation and cut the power at any point (what was not synced is lost).
//
// Threads: a FileSystem may be used from any thread; a file by one at a time.
// Errors: every failure names the path and the remedy. kResourceExhausted: disk, quota, file size, descriptors.
// kPermissionDenied: rights, read-only. kNotFound: absent. kInvalidArgument: not a usable path. kDataLoss: device error
// or bytes missing. kUnavailable: anything else the system said.
// Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi::checkpoint {

class KINTSUGI_EXPORT WritableFile {
 public:
  using Piece = std::span<const uint8_t>;
  virtual ~WritableFile() = default;  // closes
  // Makes room for `size_bytes` and sets the length, so that a full disk is found before the first byte is written.
  virtual Status Reserve(uint64_t size_bytes) = 0;
  // Writes the pieces one behind the other, the first at `offset`.
  virtual Status Write(uint64_t offset, std::span<const Piece> pieces) = 0;
  // Asks the system to begin moving this range to the disk; a hint without an outcome.
  virtual void StartFlush(uint64_t offset, uint64_t size_bytes) = 0;
  // Returns when contents and length are on the disk. After an error the file must be given up: what the system dropped
  // it does not report twice.
  virtual Status Sync() = 0;
};

class KINTSUGI_EXPORT ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size_bytes() const = 0;
  // Exactly `size_bytes`; kDataLoss when the file ends before.
  virtual Status Read(uint64_t offset, void* data, uint64_t size_bytes) = 0;
};

class KINTSUGI_EXPORT FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Parents too, and durable when this returns; a folder that is there is fine.
  virtual Status MakeFolder(const std::string& path) = 0;
  // Names in the folder, in no order.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // A new empty file; one that was there is removed first.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // A regular file, never what a symbolic link names.
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Replaces a file or an empty folder at `to` in one moment.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Swaps two entries in one moment; kFailedPrecondition where the file system cannot.
  virtual Status Exchange(const std::string& a, const std::string& b) = 0;
  // A file or a whole folder; one that is absent is fine.
  virtual Status Remove(const std::string& path) = 0;
  // Makes creations, renames and removals in the folder durable.
  virtual Status SyncFolder(const std::string& path) = 0;
};

// The machine's own file system. Has no state.
KINTSUGI_EXPORT FileSystem& PosixFileSystem();

// The status for `error` (an errno value) of `operation` on `path`. `bytes_needed` is named where it is not 0.
KINTSUGI_EXPORT Status FileError(int error, const std::string& operation, const std::string& path,
                                 uint64_t bytes_needed = 0);

// A whole small file; kDataLoss when it is larger than `size_bytes_max`.
KINTSUGI_EXPORT Result<std::string> ReadSmallFile(FileSystem& files, const std::string& path, uint64_t size_bytes_max);
// Writes and syncs a whole small file.
KINTSUGI_EXPORT Status WriteSmallFile(FileSystem& files, const std::string& path, const std::string& text);

}  // namespace kintsugi::checkpoint
