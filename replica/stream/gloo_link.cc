#include "replica/stream/gloo_link.h"

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "replica/stream/abortable_gloo.h"
#include "replica/stream/fresh_pages.h"

namespace kintsugi {
namespace {

using gloo::transport::UnboundBuffer;

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kInFlight = 8;
// No message is as long as these.
constexpr uint64_t kLengthSlot = 1ull << 62;
constexpr uint64_t kNeverSentSlot = kLengthSlot + 1;

class GlooLink final : public Link {
 public:
  GlooLink(std::unique_ptr<GlooGroup> group, Rank peer) : group_(std::move(group)), peer_(peer) {
    // Before anything else travels, so that the peer has read the notice of it by the time it closes: TCP throws away
    // what is on its way from a side that closes with bytes unread.
    Watched([this] {
      never_ = Buffer(&byte_, 1);
      never_->recv(Other(), kNeverSentSlot);
    });
    watcher_ = std::thread([this] {
      Watched([this] {
        if (never_) never_->waitRecv();
      });
    });
  }
  ~GlooLink() override {
    Abort();
    watcher_.join();
  }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    return Guard("send", deadline, [&] {
      auto* data = static_cast<uint8_t*>(memory.data) + offset;
      uint64_t length = size_bytes;
      auto header = Buffer(&length, sizeof(length));
      header->send(Other(), kLengthSlot);
      std::deque<std::unique_ptr<UnboundBuffer>> pieces;
      // The observer sees a piece when the socket has read it: then it comes from a cache, and not from memory once more.
      const auto finish = [&] {
        pieces.front()->waitSend(Remaining(deadline));
        const std::unique_ptr<UnboundBuffer> piece = std::move(pieces.front());
        pieces.pop_front();
        if (observer) observer->Passed(piece->ptr, piece->size);
      };
      for (uint64_t at = 0; at < size_bytes; at += kPieceBytes) {
        if (pieces.size() == kInFlight) finish();
        pieces.push_back(Buffer(data + at, std::min(kPieceBytes, size_bytes - at)));
        pieces.back()->send(Other(), size_bytes);
      }
      header->waitSend(Remaining(deadline));
      while (!pieces.empty()) finish();
      return Status::Ok();
    });
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    return Guard("receive", deadline, [&] {
      auto* target = static_cast<uint8_t*>(data);
      uint64_t length = 0;
      auto header = Buffer(&length, sizeof(length));
      header->recv(Other(), kLengthSlot);
      std::deque<std::unique_ptr<UnboundBuffer>> pieces;
      uint64_t posted = 0;
      const auto post = [&] {
        const uint64_t part = std::min(kPieceBytes, size_bytes - posted);
        FillFreshPages(target + posted, part);
        pieces.push_back(Buffer(target + posted, part));
        pieces.back()->recv(Other(), size_bytes);
        posted += part;
      };
      while (posted < size_bytes && pieces.size() < kInFlight) post();
      header->waitRecv(Remaining(deadline));
      if (length != size_bytes) return internal::LinkSizeMismatch(*this, size_bytes, length);
      while (!pieces.empty()) {
        pieces.front()->waitRecv(Remaining(deadline));
        const std::unique_ptr<UnboundBuffer> piece = std::move(pieces.front());
        pieces.pop_front();
        if (posted < size_bytes) post();
        if (observer) observer->Passed(piece->ptr, piece->size);
      }
      return Status::Ok();
    });
  }

  void Abort() override {
    aborted_.store(true);
    group_->Abort();
  }
  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "gloo"; }

 private:
  int Other() const { return 1 - group_->rank(); }
  std::unique_ptr<UnboundBuffer> Buffer(void* data, size_t size_bytes) {
    return group_->context()->createUnboundBuffer(data, size_bytes);
  }

  // Gloo's timeout closes every pair of the context; here that is this link alone, which is of no use any more anyway.
  static std::chrono::milliseconds Remaining(TimePoint deadline) {
    const Duration left = deadline - SteadyClock::SteadyNow();
    return std::clamp(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(0),
                      std::chrono::milliseconds(std::chrono::hours(24)));
  }

  // What a broken connection throws ends the waits that Gloo leaves waiting.
  template <typename Body>
  void Watched(Body body) {
    if (!Broken().empty()) return;
    try {
      body();
    } catch (const GlooAborted&) {
    } catch (const std::exception& e) {
      {
        std::lock_guard lock(mutex_);
        broken_ = e.what();
      }
      group_->device()->EndWaits();
    }
  }

  std::string Broken() {
    std::lock_guard lock(mutex_);
    return broken_;
  }

  template <typename Body>
  Status Guard(std::string_view what, TimePoint deadline, Body body) {
    const TimePoint start = SteadyClock::SteadyNow();
    try {
      return body();
    } catch (const std::exception& e) {
      if (aborted_.load()) return internal::LinkAborted(*this, what);
      // A wait that ran out has closed the connection itself: the limit is the cause, the broken connection the echo.
      if (SteadyClock::SteadyNow() >= deadline) return internal::LinkDeadline(*this, what, start, deadline);
      const std::string broken = Broken();
      return internal::LinkPeerGone(*this, what, broken.empty() ? e.what() : broken);
    }
  }

  const std::unique_ptr<GlooGroup> group_;
  const Rank peer_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::string broken_;  // guarded by mutex_: why the connection failed
  uint8_t byte_ = 0;
  std::unique_ptr<UnboundBuffer> never_;  // a receive that never begins
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<Link> MakeGlooLink(std::unique_ptr<GlooGroup> group, Rank peer) {
  return std::make_unique<GlooLink>(std::move(group), peer);
}

}  // namespace kintsugi
