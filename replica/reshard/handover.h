// Handover: messages from the thread that fills buffers to the one that empties them (private to this folder).
//
// What: a few buffers of one size, made when they are first needed, and a queue in order. A message that needs no
// buffer passes through the same queue. Stop ends all waits of both sides.
// Threads: one fills, one empties, any stops.
// Errors: none; a stopped side learns it by false or null, why is the execution's business.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "replica/reshard/message_cursor.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi::reshard {

// Bytes of buffers that there are, over all peers, and the most there were.
class StagingMeter {
 public:
  void Add(int64_t bytes) {
    const int64_t now = bytes_.fetch_add(bytes) + bytes;
    int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  int64_t peak() const { return peak_.load(); }

 private:
  std::atomic<int64_t> bytes_{0}, peak_{0};
};

// A message and its bytes; null where they lie in final memory.
struct Filled {
  PackedMessage message;
  uint8_t* buffer = nullptr;
};

class Handover {
 public:
  Handover(size_t buffers_max, int64_t buffer_bytes, StagingMeter& meter)
      : buffers_max_(buffers_max), buffer_bytes_(buffer_bytes), meter_(meter) {
    KINTSUGI_CHECK(buffers_max > 0 && buffer_bytes >= 0, "a message is handed over in a buffer");
  }
  ~Handover() { meter_.Add(-buffer_bytes_ * static_cast<int64_t>(buffers_.size())); }

  int64_t buffer_bytes() const { return buffer_bytes_; }
  // A buffer to fill; null: stopped.
  uint8_t* Take();
  // Passes a message on; false: stopped.
  bool Put(Filled filled);
  // No more messages come.
  void Close();
  // The next message; false: there are no more, or stopped.
  bool Get(Filled* filled);
  void GiveBack(uint8_t* buffer);
  void Stop();

 private:
  const size_t buffers_max_;
  const int64_t buffer_bytes_;
  StagingMeter& meter_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<uint8_t*> free_ KINTSUGI_GUARDED_BY(mutex_);
  std::deque<Filled> queue_ KINTSUGI_GUARDED_BY(mutex_);
  bool closed_ KINTSUGI_GUARDED_BY(mutex_) = false;
  bool stopped_ KINTSUGI_GUARDED_BY(mutex_) = false;
};

}  // namespace kintsugi::reshard
