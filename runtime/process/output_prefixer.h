// OutputPrefixer: writes the workers' lines to the launcher's own output as "[rank 2] line", coloured by rank on a
// terminal, whole line after whole line.
//
// What is written waits in a WriteQueue: a reader that is slow or stopped holds up nobody. Beyond the queue's bound the
// oldest lines are dropped, and their number is said.
//
// Threads: all functions from any thread. Everything that a launcher prints should pass through here, else its lines
//   can break into others.
// Ownership: the two descriptors stay the caller's and must outlive the object. The destructor writes what is queued,
//   for at most kFlushLimit, then gives up, even on an output that blocks for good.
// Errors: none. A closed output (EPIPE) swallows what follows; no SIGPIPE reaches the process, a full one (EAGAIN) is
//   waited for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/process/process_spec.h"
#include "runtime/process/write_queue.h"

namespace kintsugi {

class KINTSUGI_EXPORT OutputPrefixer {
 public:
  static constexpr std::chrono::seconds kFlushLimit = WriteQueue::kFlushLimit;

  // kAuto: a terminal that is not "dumb", and NO_COLOR unset or empty; read once, at construction.
  enum class Color { kAuto, kNever, kAlways };

  struct Options {
    int stdout_fd = 1;
    int stderr_fd = 2;
    Color color = Color::kAuto;
    size_t queue_bytes_max = 4 * 1024 * 1024;
    // Another form for what is written, newline included; null: "[rank 2] line", and words. Called from any thread.
    std::function<std::string(std::optional<Rank>, OutputStream, std::string_view line)> line_of;
    std::function<std::string(uint64_t lines)> on_dropped;
  };

  OutputPrefixer() : OutputPrefixer(Options{}) {}
  explicit OutputPrefixer(const Options& options);
  ~OutputPrefixer();
  OutputPrefixer(const OutputPrefixer&) = delete;
  OutputPrefixer& operator=(const OutputPrefixer&) = delete;

  // One line of a worker, without its newline. No rank: of a spare.
  void WriteLine(std::optional<Rank> rank, OutputStream stream, std::string_view line);

  // The launcher's own text, as it is: newlines are the caller's.
  void WriteText(OutputStream stream, std::string_view text);

  // Waits until all that was queued before is written or given up; false after `limit`.
  bool Flush(std::chrono::milliseconds limit);

  // Lines (or texts) that were dropped because an output was too slow or closed.
  uint64_t dropped() const;

 private:
  std::string Prefixed(std::optional<Rank> rank, OutputStream stream, std::string_view line) const;

  const bool colored_[2];  // by stream
  const std::function<std::string(std::optional<Rank>, OutputStream, std::string_view)> line_of_;
  WriteQueue queue_;
};

}  // namespace kintsugi
