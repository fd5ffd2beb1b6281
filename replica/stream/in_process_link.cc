#include "replica/stream/in_process_link.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "kernels/host_copy.h"

namespace kintsugi {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
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
  std::mutex mutex;
  std::condition_variable changed;
  Direction directions[2];  // [i]: from end i to end 1 - i
  bool closed[2] = {false, false};
};

class InProcessLink final : public Link {
 public:
  InProcessLink(std::shared_ptr<Channel> channel, int end, Rank peer)
      : channel_(std::move(channel)), end_(end), peer_(peer) {}
  ~InProcessLink() override { Close(); }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    const TimePoint start = SteadyClock::SteadyNow();
    auto message = std::make_shared<Message>();
    message->data = static_cast<const uint8_t*>(memory.data) + offset;
    message->size_bytes = size_bytes;
    if (observer) Observe(*message, *observer);
    const bool keep = size_bytes <= kKeptBytes;
    if (keep) {
      if (size_bytes > 0) message->kept.assign(message->data, message->data + size_bytes);
      message->data = message->kept.data();
    }
    std::unique_lock lock(channel_->mutex);
    auto& queue = channel_->directions[end_].queue;
    KINTSUGI_RETURN_IF_ERROR(
        Wait(lock, "send", start, deadline, [&] { return queue.size() < kKeptMessages && !channel_->closed[1 - end_]; }));
    queue.push_back(message);
    channel_->changed.notify_all();
    if (keep) return Status::Ok();
    const Status status = Wait(lock, "send", start, deadline, [&] { return message->done; });
    if (status.ok()) return status;
    message->withdrawn = true;
    std::erase(queue, message);
    channel_->changed.wait(lock, [&] { return !message->taken; });
    return status;
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    const TimePoint start = SteadyClock::SteadyNow();
    std::unique_lock lock(channel_->mutex);
    auto& queue = channel_->directions[1 - end_].queue;
    KINTSUGI_RETURN_IF_ERROR(Wait(lock, "receive", start, deadline, [&] { return !queue.empty(); }));
    auto message = queue.front();
    if (message->size_bytes != size_bytes) {
      channel_->closed[end_] = true;
      channel_->changed.notify_all();
      return internal::LinkSizeMismatch(*this, size_bytes, message->size_bytes);
    }
    queue.pop_front();
    message->taken = true;
    const Status status = CopyOut(lock, *message, static_cast<uint8_t*>(data), observer);
    message->taken = false;
    message->done = status.ok();
    channel_->changed.notify_all();
    return status;
  }

  void Abort() override {
    std::lock_guard lock(channel_->mutex);
    aborted_ = true;
    channel_->closed[end_] = true;
    channel_->changed.notify_all();
  }

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "in-process"; }

 private:
  static void Observe(const Message& message, PieceObserver& observer) {
    for (uint64_t at = 0; at < message.size_bytes; at += kPieceBytes)
      observer.Passed(message.data + at, std::min(kPieceBytes, message.size_bytes - at));
  }

  void Close() {
    std::lock_guard lock(channel_->mutex);
    channel_->closed[end_] = true;
    channel_->changed.notify_all();
  }

  template <typename Ready>
  Status Wait(std::unique_lock<std::mutex>& lock, std::string_view what, TimePoint start, TimePoint deadline,
              Ready ready) {
    const auto until = std::chrono::steady_clock::time_point(deadline.since_epoch());
    channel_->changed.wait_until(lock, until, [&] { return aborted_ || ready() || channel_->closed[1 - end_]; });
    if (aborted_) return internal::LinkAborted(*this, what);
    if (ready()) return Status::Ok();
    if (channel_->closed[1 - end_]) return internal::LinkPeerGone(*this, what, "the rank closed it");
    return internal::LinkDeadline(*this, what, start, deadline);
  }

  // Copies in pieces, between which the lock is taken to see whether either side gave up.
  Status CopyOut(std::unique_lock<std::mutex>& lock, const Message& message, uint8_t* to, PieceObserver* observer) {
    for (uint64_t at = 0; at < message.size_bytes; at += kPieceBytes) {
      if (aborted_) return internal::LinkAborted(*this, "receive");
      if (message.withdrawn) return internal::LinkPeerGone(*this, "receive", "the rank took the message back");
      lock.unlock();
      const uint64_t part = std::min(kPieceBytes, message.size_bytes - at);
      if (observer)
        observer->Copy(to + at, message.data + at, part);
      else
        StreamCopy(to + at, message.data + at, part);
      lock.lock();
    }
    return Status::Ok();
  }

  const std::shared_ptr<Channel> channel_;
  const int end_;
  const Rank peer_;
  bool aborted_ = false;  // guarded by the channel's mutex
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeInProcessLinks(Rank a, Rank b) {
  auto channel = std::make_shared<Channel>();
  return {std::make_unique<InProcessLink>(channel, 0, b), std::make_unique<InProcessLink>(channel, 1, a)};
}

}  // namespace kintsugi
