// LogFile: a log in a file that is rotated by its size (spdlog): run.log, then run.1.log is the one before it, and so on.
//
// Threads: any; the file is written by a WriteQueue's thread.
// Ownership: see WriteQueue.
// Errors: Open: kUnavailable with the file and the reason. What cannot be written later is lost: `on_trouble` is told once
//   per reason, and with no words when it goes on; the file is opened anew once a second.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.h"
#include "runtime/process/write_queue.h"

namespace kintsugi::logs {

struct LogFileOptions {
  std::string file;
  size_t bytes_max = size_t{64} << 20;  // of each
  size_t kept = 5;                      // older ones beside it
  size_t queue_bytes_max = 4 << 20;
  // On the queue's thread: why lines are lost; empty: it goes on, after so many.
  std::function<void(const std::string& why, uint64_t lines_lost)> on_trouble = [](const std::string&, uint64_t) {};
};

class LogFile {
 public:
  static Result<std::unique_ptr<LogFile>> Open(LogFileOptions options);

  // A line with its newline.
  void Write(std::string line) { queue_.Put(0, std::move(line)); }
  bool Flush(std::chrono::milliseconds limit) { return queue_.Flush(limit); }
  uint64_t lost() const { return queue_.dropped(); }

 private:
  LogFile(std::unique_ptr<QueuedOutput> output, size_t queue_bytes_max) : queue_(std::move(output), queue_bytes_max) {}

  WriteQueue queue_;
};

}  // namespace kintsugi::logs
