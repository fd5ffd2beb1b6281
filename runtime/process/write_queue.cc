#include "runtime/process/write_queue.h"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <utility>

namespace kintsugi {
namespace {

// For a thread that looks out while it waits to see that it is given up.
constexpr std::chrono::milliseconds kLastTurn{300};

}  // namespace

// The queue, and what empties it.
class WriteQueue::Writer {
 public:
  Writer(std::unique_ptr<QueuedOutput> output, size_t bytes_max) : output_(std::move(output)), bytes_max_(bytes_max) {}

  void Put(int place, std::string text) {
    const std::lock_guard lock(mutex_);
    queued_bytes_ += text.size();
    queue_.push_back({place, std::move(text)});
    // The newest item stays whatever its size: a queue that can hold nothing would write nothing.
    while (queued_bytes_ > bytes_max_ && queue_.size() > 1) {
      queued_bytes_ -= queue_.front().text.size();
      queue_.pop_front();
      ++dropped_;
      ++untold_;
    }
    changed_.notify_all();
  }

  bool Flush(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return queue_.empty() && !writing_; });
  }

  uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  // Nothing more will come. False when the thread did not end within `limit` and hangs in a write.
  bool Stop(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (changed_.wait_for(lock, limit, [this] { return ended_; })) return true;
    given_up_ = true;
    return changed_.wait_for(lock, kLastTurn, [this] { return ended_; });
  }

  // The thread's main function.
  void Run() {
    // A closed pipe must not raise SIGPIPE; blocked here it stays with this thread and dies with it.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    while (TakeNext(lock)) {
      const Item item = std::move(current_);
      lock.unlock();
      const bool written = !given_up_ && output_->Write(item.place, item.text, given_up_);
      lock.lock();
      writing_ = false;
      if (!written) ++dropped_;
      changed_.notify_all();
    }
    ended_ = true;
    changed_.notify_all();
  }

 private:
  using Item = QueuedOutput::Remark;

  bool TakeNext(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return false;
    writing_ = true;
    if (untold_ > 0) {
      current_ = output_->OnDropped(std::exchange(untold_, 0));
      if (!current_.text.empty()) return true;
    }
    current_ = std::move(queue_.front());
    queued_bytes_ -= current_.text.size();
    queue_.pop_front();
    return true;
  }

  const std::unique_ptr<QueuedOutput> output_;
  const size_t bytes_max_;
  std::atomic<bool> given_up_{false};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Item> queue_;
  Item current_{};
  size_t queued_bytes_ = 0;
  uint64_t dropped_ = 0;
  uint64_t untold_ = 0;
  bool writing_ = false;
  bool stopping_ = false;
  bool ended_ = false;
};

WriteQueue::WriteQueue(std::unique_ptr<QueuedOutput> output, size_t bytes_max)
    : writer_(std::make_shared<Writer>(std::move(output), bytes_max)), thread_([writer = writer_] { writer->Run(); }) {}

WriteQueue::~WriteQueue() {
  // A thread that an output blocks for good must not block the end of the run.
  if (writer_->Stop(kFlushLimit)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void WriteQueue::Put(int place, std::string text) { writer_->Put(place, std::move(text)); }

bool WriteQueue::Flush(std::chrono::milliseconds limit) { return writer_->Flush(limit); }

uint64_t WriteQueue::dropped() const { return writer_->dropped(); }

}  // namespace kintsugi
