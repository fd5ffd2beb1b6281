// FileWriter: bytes to a file from a thread of its own, so that its caller never waits for a disk.
//
// Threads: Write and Finish from one thread.
// Errors: Open's are returned. A write that fails later (a full disk, a limit on file sizes) ends the writing:
// `failure` says why, once, and everything after it is dropped. What waits is bounded: Write refuses what comes faster
// than the disk takes it.
// Ownership: the destructor waits for what is left, but not for a disk that hangs: after a second the thread is left
// alone with its file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.h"

namespace kintsugi::journal {

class FileWriter {
 public:
  // `on_failure` is called on the writing thread.
  using OnFailure = std::function<void(const Status&)>;
  // Makes the file anew, readable by its owner only.
  static Result<std::unique_ptr<FileWriter>> Open(const std::string& path, size_t waiting_bytes_max,
                                                  OnFailure on_failure);
  ~FileWriter();

  // False: more would wait than may, or writing has failed before; nothing was taken. `whatever`: the bound does not
  // count.
  bool Write(std::string&& bytes, bool whatever = false);

 private:
  struct Shared;
  explicit FileWriter(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace kintsugi::journal
