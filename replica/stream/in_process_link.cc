#include "replica/stream/in_process_link.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "kernels/host_copy.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"

namespace kintsugi {
namespace {

constexpr uint64_t kInProcessPieceBytes = 1 << 20;
// Messages up to this size are kept, so that their sender goes on at once; of larger ones the receiver copies straight
// from the sender's memory while the sender waits.
constexpr uint64_t kKeptBytes = 64 * 1024;
constexpr size_t kKeptMessages = 64;

struct Message {
  const uint8_t* data = nullptr;
  uint64_t size_bytes = 0;
  std::vector<uint8_t> kept;
  bool taken = false;      // a receiver is copying: the sender must not leave
  bool withdrawn = false;  // the sender wants to leave: the receiver stops at the next piece
  bool done = false;
};

struct Direction {
  std::deque<std::shared_ptr<Message>> queue;
};

struct Channel {
  Mutex mutex;
  CondVar changed;
  Direction directions[2] KINTSUGI_GUARDED_BY(mutex);  // [i]: from end i to end 1 - i
  bool closed[2] KINTSUGI_GUARDED_BY(mutex) = {false, false};
};

class InProcessLink final : public Link {
 public:
  InProcessLink(std::shared_ptr<Channel> channel, int end, Rank peer)
      : channel_(std::move(channel)), end_(end), peer_(peer) {
    KINTSUGI_CHECK(end == 0 || end == 1, "a link has two ends");
  }
  ~InProcessLink() override { Close(); }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    const TimePoint start = SteadyClock::SteadyNow();
    auto message = std::make_shared<Message>();
    message->data = internal::SourceOf(memory, offset, size_bytes);
    message->size_bytes = size_bytes;
    if (observer) Observe(*message, *observer);
    const bool keep = size_bytes <= kKeptBytes;
    if (keep) {
      if (size_bytes > 0) message->kept.assign(message->data, message->data + size_bytes);
      message->data = message->kept.data();
    }
    MutexLock lock(channel_->mutex);
    auto& queue = channel_->directions[end_].queue;
    KINTSUGI_RETURN_IF_ERROR(Wait(lock, "send", start, deadline, [&]() KINTSUGI_REQUIRES(channel_->mutex) {
      return queue.size() < kKeptMessages && !channel_->closed[1 - end_];
    }));
    queue.push_back(message);
    channel_->changed.NotifyAll();
    if (keep) return Status::Ok();
    const Status status = Wait(lock, "send", start, deadline, [&] { return message->done; });
    if (status.ok()) return status;
    message->withdrawn = true;
    std::erase(queue, message);
    channel_->changed.Wait(lock, [&] { return !message->taken; });
    return status;
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    const TimePoint start = SteadyClock::SteadyNow();
    MutexLock lock(channel_->mutex);
    auto& queue = channel_->directions[1 - end_].queue;
    KINTSUGI_RETURN_IF_ERROR(
        Wait(lock, "receive", start, deadline, [&]() KINTSUGI_REQUIRES(channel_->mutex) { return !queue.empty(); }));
    auto message = queue.front();
    if (message->size_bytes != size_bytes) {
      channel_->closed[end_] = true;
      channel_->changed.NotifyAll();
      return internal::LinkSizeMismatch(*this, size_bytes, message->size_bytes);
    }
    queue.pop_front();
    KINTSUGI_CHECK(!message->taken && !message->done && !message->withdrawn,
                   "a message in the queue waits to be taken");
    message->taken = true;
    Status status;
    // In pieces, between which the lock is taken to see whether either side gave up.
    for (uint64_t at = 0; at < size_bytes; at += kInProcessPieceBytes) {
      if (aborted_) status = internal::LinkAborted(*this, "receive");
      if (status.ok() && message->withdrawn)
        status = internal::LinkPeerGone(*this, "receive", "the rank took the message back");
      if (!status.ok()) break;
      lock.Unlock();
      CopyPiece(static_cast<uint8_t*>(data) + at, message->data + at, std::min(kInProcessPieceBytes, size_bytes - at), observer);
      lock.Lock();
    }
    message->taken = false;
    message->done = status.ok();
    channel_->changed.NotifyAll();
    return status;
  }

  void Abort() override {
    const MutexLock lock(channel_->mutex);
    aborted_ = true;
    channel_->closed[end_] = true;
    channel_->changed.NotifyAll();
  }

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "in-process"; }

 private:
  static void Observe(const Message& message, PieceObserver& observer) {
    for (uint64_t at = 0; at < message.size_bytes; at += kInProcessPieceBytes)
      observer.Passed(message.data + at, std::min(kInProcessPieceBytes, message.size_bytes - at));
  }

  void Close() {
    const MutexLock lock(channel_->mutex);
    channel_->closed[end_] = true;
    channel_->changed.NotifyAll();
  }

  template <typename Ready>
  Status Wait(MutexLock& lock, std::string_view what, TimePoint start, TimePoint deadline, Ready ready)
      KINTSUGI_REQUIRES(channel_->mutex) {
    const auto until = std::chrono::steady_clock::time_point(deadline.since_epoch());
    channel_->changed.WaitUntil(lock, until, [&]() KINTSUGI_REQUIRES(channel_->mutex) {
      return aborted_ || ready() || channel_->closed[1 - end_];
    });
    if (aborted_) return internal::LinkAborted(*this, what);
    if (ready()) return Status::Ok();
    if (channel_->closed[1 - end_]) return internal::LinkPeerGone(*this, what, "the rank closed it");
    return internal::LinkDeadline(*this, what, start, deadline);
  }

  static void CopyPiece(uint8_t* to, const uint8_t* from, uint64_t size, PieceObserver* observer) {
    if (observer)
      observer->Copy(to, from, size);
    else
      StreamCopy(to, from, size);
  }

  const std::shared_ptr<Channel> channel_;
  const int end_;
  const Rank peer_;
  bool aborted_ KINTSUGI_GUARDED_BY(channel_->mutex) = false;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeInProcessLinks(Rank a, Rank b) {
  auto channel = std::make_shared<Channel>();
  return {std::make_unique<InProcessLink>(channel, 0, b), std::make_unique<InProcessLink>(channel, 1, a)};
}

}  // namespace kintsugi
