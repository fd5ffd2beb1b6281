#include "runtime/process/write_queue.h"

#include <pthread.h>

#include <csignal>
#include <deque>
#include <utility>

#include "runtime/base/mutex.h"

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
    const MutexLock lock(mutex_);
    queued_bytes_ += text.size();
    queue_.push_back({place, std::move(text)});
    // The newest item stays whatever its size: a queue that can hold nothing would write nothing.
    while (queued_bytes_ > bytes_max_ && queue_.size() > 1) {
      queued_bytes_ -= queue_.front().text.size();
      queue_.pop_front();
      ++dropped_;
      ++untold_;
    }
    changed_.NotifyAll();
  }

  bool Flush(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    return changed_.WaitFor(lock, limit, [this]() KINTSUGI_REQUIRES(mutex_) { return queue_.empty() && !writing_; });
  }

  uint64_t dropped() const {
    const MutexLock lock(mutex_);
    return dropped_;
  }

  // Nothing more will come. False when the thread did not end within `limit` and hangs in a write.
  bool Stop(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    const auto ended = [this]() KINTSUGI_REQUIRES(mutex_) { return ended_; };
    if (changed_.WaitFor(lock, limit, ended)) return true;
    given_up_ = true;
    return changed_.WaitFor(lock, kLastTurn, ended);
  }

  // The thread's main function.
  void Run() {
    // A closed pipe must not raise SIGPIPE; blocked here it stays with this thread and dies with it.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    MutexLock lock(mutex_);
    while (TakeNext(lock)) {
      const Item item = std::move(current_);
      lock.Unlock();
      const bool written = !given_up_ && output_->Write(item.place, item.text, given_up_);
      lock.Lock();
      writing_ = false;
      if (!written) ++dropped_;
      changed_.NotifyAll();
    }
    ended_ = true;
    changed_.NotifyAll();
  }

 private:
  using Item = QueuedOutput::Remark;

  bool TakeNext(MutexLock& lock) KINTSUGI_REQUIRES(mutex_) {
    changed_.Wait(lock, [this]() KINTSUGI_REQUIRES(mutex_) { return !queue_.empty() || stopping_; });
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

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Item> queue_ KINTSUGI_GUARDED_BY(mutex_);
  Item current_ KINTSUGI_GUARDED_BY(mutex_){};
  size_t queued_bytes_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  uint64_t untold_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  bool writing_ KINTSUGI_GUARDED_BY(mutex_) = false;
  bool stopping_ KINTSUGI_GUARDED_BY(mutex_) = false;
  bool ended_ KINTSUGI_GUARDED_BY(mutex_) = false;
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
