// WriteQueue: texts on their way to an output that may be slow, stopped, full or gone, with a thread of its own.
//
// Why: the reader of a launcher's output, and the disk that its files are on, may stand still, and the thread that
// watches the workers must never wait for them. Texts queue up to a bound; beyond it the oldest are dropped and
// counted.
//
// Threads: all functions from any thread; the output is used by the own thread alone.
// Ownership: the output is the queue's, shared with the thread. The destructor writes what is queued, for at most
//   kFlushLimit, then gives up; a thread that hangs in a write for good is left behind with the output.
// Errors: none; what was not written is counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/export.h"

namespace kintsugi {

// Where a queue's texts go.
class QueuedOutput {
 public:
  virtual ~QueuedOutput() = default;
  // False: the text is lost. `place` is what Put was given. May block; a writer that can look out while it waits ends
  // once `given_up` is true.
  virtual bool Write(int place, std::string_view text, const std::atomic<bool>& given_up) = 0;
  // So many texts did not fit into the queue since the last call; told before the next one is written. What it gives is
  // written first, unless it is empty.
  struct Remark {
    int place = 0;
    std::string text;
  };
  virtual Remark OnDropped(uint64_t texts) = 0;
};

class KINTSUGI_EXPORT WriteQueue {
 public:
  static constexpr std::chrono::seconds kFlushLimit{2};

  WriteQueue(std::unique_ptr<QueuedOutput> output, size_t bytes_max);
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  void Put(int place, std::string text);
  // Waits until all that was put before is written or given up; false after `limit`.
  bool Flush(std::chrono::milliseconds limit);
  // Texts that were dropped or lost.
  uint64_t dropped() const;

 private:
  class Writer;
  std::shared_ptr<Writer> writer_;  // shared with its thread, which may be left behind in a blocked write
  std::thread thread_;
};

}  // namespace kintsugi
