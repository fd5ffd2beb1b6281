#include "replica/stream/shared_memory_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/host_copy.h"
#include "replica/stream/fresh_pages.h"
#include "replica/stream/peer_memory.h"
#include "runtime/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kintsugi {
namespace {

constexpr uint64_t kSharedPieceBytes = 1 << 20;         // between two looks at the flags
constexpr uint64_t kDirectBytes = 64 * 1024;      // below this a copy through the ring beats the round trip
constexpr int kSpins = 64;                        // some 4 microseconds
constexpr int64_t kLivenessNs = 5'000'000;        // how often a sleeper looks whether its peer still lives

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

class SharedMemoryLink final : public Link {
 public:
  SharedMemoryLink(SharedSegment segment, int end, Rank peer, PeerProcess process)
      : segment_(std::move(segment)),
        end_(end),
        peer_(peer),
        process_(std::move(process)),
        peer_memory_(process_.pid()) {
    KINTSUGI_CHECK(end == 0 || end == 1, "a link has two ends");
  }
  ~SharedMemoryLink() override { Close(); }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    const Call call{"send", SteadyClock::SteadyNow(), deadline};
    const uint8_t* data = internal::SourceOf(memory, offset, size_bytes);
    if (memory.kind == MemoryKind::kShared && size_bytes >= kDirectBytes && !files_refused_) {
      const FileIdentity file = IdentifyFile(memory.shared_fd);
      const SlotHeader header{.kind = SlotKind::kFile,
                              .message_bytes = size_bytes,
                              .place = memory.shared_offset + offset,
                              .inode = file.inode,
                              .device = file.device,
                              .fd = file.fd};
      if (file.inode != 0) {
        KINTSUGI_ASSIGN_OR_RETURN(const bool taken, SendPlace(call, header, data, observer));
        if (taken) return Status::Ok();
        observer = nullptr;  // it has seen the bytes
      }
    }
    return SendThroughRing(call, data, size_bytes, observer);
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    const Call call{"receive", SteadyClock::SteadyNow(), deadline};
    auto* target = static_cast<uint8_t*>(data);
    for (;;) {
      KINTSUGI_RETURN_IF_ERROR(WaitForData(call));
      SharedRing& ring = in();
      SlotHeader& header = ring.headers[ring.consumed.load() % SharedRing::kSlots];
      if (header.message_bytes != size_bytes) {
        Close();
        return internal::LinkSizeMismatch(*this, size_bytes, header.message_bytes);
      }
      if (header.kind == SlotKind::kStart) return ReceiveThroughRing(call, target, size_bytes, observer);
      KINTSUGI_ASSIGN_OR_RETURN(const bool taken, ReceiveFromPlace(call, header, target, observer));
      header.refused = taken ? 0 : 1;
      Consume();
      if (taken) return Status::Ok();
    }
  }

  void Abort() override {
    aborted_.store(true);
    Close();
  }

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "shared-memory"; }

 private:
  struct Call {
    std::string_view what;
    TimePoint start, deadline;
  };

  SharedRing& out() const { return segment_.header().rings[end_]; }
  SharedRing& in() const { return segment_.header().rings[1 - end_]; }
  bool PeerClosed() const { return segment_.header().closed[1 - end_].load() != 0; }

  // Says to both sides that this end is of no use any more.
  void Close() {
    segment_.header().closed[end_].store(1);
    for (SharedRing& ring : segment_.header().rings) {
      SignalWord(ring.data);
      SignalWord(ring.space);
    }
  }

  template <typename Ready>
  Status Wait(const Call& call, WaitWord& word, Ready ready) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (aborted_.load()) return internal::LinkAborted(*this, call.what);
      if (ready()) return Status::Ok();
      Pause();
    }
    bool dead = false;  // known before the last look, so that what a peer sent before it died is not lost
    for (;;) {
      word.waiters.store(1);
      const uint32_t seen = word.event.load();
      const bool closed = PeerClosed();
      if (aborted_.load()) return internal::LinkAborted(*this, call.what);
      if (ready()) return Status::Ok();
      if (closed) return internal::LinkPeerGone(*this, call.what, "the rank closed it");
      if (dead) return internal::LinkPeerGone(*this, call.what, "its process is gone");
      const int64_t left = (call.deadline - SteadyClock::SteadyNow()).count();
      if (left <= 0) return internal::LinkDeadline(*this, call.what, call.start, call.deadline);
      SleepOnWord(word, seen, std::min(left, kLivenessNs));
      dead = !process_.alive();
    }
  }

  Status WaitForSpace(const Call& call) {
    SharedRing& ring = out();
    return Wait(call, ring.space, [&] { return ring.produced.load() - ring.consumed.load() < SharedRing::kSlots; });
  }
  Status WaitForData(const Call& call) {
    SharedRing& ring = in();
    return Wait(call, ring.data, [&] { return ring.produced.load() != ring.consumed.load(); });
  }
  void Produce() {
    out().produced.fetch_add(1);
    SignalWord(out().data);
  }
  void Consume() {
    in().consumed.fetch_add(1);
    SignalWord(in().space);
  }

  Status SendThroughRing(const Call& call, const uint8_t* data, uint64_t size_bytes, PieceObserver* observer) {
    uint64_t at = 0;
    do {
      KINTSUGI_RETURN_IF_ERROR(WaitForSpace(call));
      const uint64_t count = out().produced.load();
      const uint64_t part = std::min(SharedRing::kSlotBytes, size_bytes - at);
      CopyOut(segment_.slot(end_, count), data + at, part, observer);
      out().headers[count % SharedRing::kSlots] = {.kind = at == 0 ? SlotKind::kStart : SlotKind::kContinue,
                                                   .part_bytes = static_cast<uint32_t>(part),
                                                   .message_bytes = size_bytes};
      Produce();
      at += part;
    } while (at < size_bytes);
    return Status::Ok();
  }

  // True: the receiver has copied the message. False: it cannot read from there.
  Result<bool> SendPlace(const Call& call, const SlotHeader& header, const uint8_t* data, PieceObserver* observer) {
    KINTSUGI_RETURN_IF_ERROR(WaitForSpace(call));
    SharedRing& ring = out();
    const uint64_t count = ring.produced.load();
    ring.headers[count % SharedRing::kSlots] = header;
    Produce();
    // The receiver copies meanwhile.
    for (uint64_t at = 0; observer && at < header.message_bytes && !aborted_.load(); at += kSharedPieceBytes)
      observer->Passed(data + at, std::min(kSharedPieceBytes, header.message_bytes - at));
    KINTSUGI_RETURN_IF_ERROR(Wait(call, ring.space, [&] { return ring.consumed.load() > count; }));
    const bool taken = ring.headers[count % SharedRing::kSlots].refused == 0;
    if (!taken) files_refused_ = true;
    return taken;
  }

  Status ReceiveThroughRing(const Call& call, uint8_t* target, uint64_t size_bytes, PieceObserver* observer) {
    uint64_t at = 0;
    do {
      KINTSUGI_RETURN_IF_ERROR(WaitForData(call));
      const uint64_t count = in().consumed.load();
      const SlotHeader& header = in().headers[count % SharedRing::kSlots];
      const uint64_t part = header.part_bytes;
      const bool fits = (header.kind == SlotKind::kStart) == (at == 0) && part <= SharedRing::kSlotBytes &&
                        part == std::min(SharedRing::kSlotBytes, size_bytes - at);
      if (!fits) {
        Close();
        return {StatusCode::kDataLoss, "the ring shared with rank " + peer_.ToString() + " is damaged"};
      }
      if (at % kSharedPieceBytes == 0) FillFreshPages(target + at, std::min(kSharedPieceBytes, size_bytes - at));
      if (part > 0) CopyIn(target + at, segment_.slot(1 - end_, count), part, observer);
      Consume();
      at += part;
    } while (at < size_bytes);
    return Status::Ok();
  }

  // False: nothing was copied, the place cannot be read from here.
  Result<bool> ReceiveFromPlace(const Call& call, const SlotHeader& header, uint8_t* target, PieceObserver* observer) {
    if (header.kind != SlotKind::kFile) return false;
    auto source = peer_memory_.Map({.fd = header.fd, .inode = header.inode, .device = header.device}, header.place,
                                   header.message_bytes);
    if (!source.ok()) return false;
    for (uint64_t at = 0; at < header.message_bytes; at += kSharedPieceBytes) {
      if (aborted_.load()) return internal::LinkAborted(*this, call.what);
      const uint64_t part = std::min(kSharedPieceBytes, header.message_bytes - at);
      FillFreshPages(target + at, part);
      CopyIn(target + at, *source + at, part, observer);
      // A sender that gave up may change its memory: it closes first, so bytes copied before this look are good.
      if (PeerClosed()) return internal::LinkPeerGone(*this, call.what, "the rank closed it");
    }
    return true;
  }

  // A tile at a time, so that the copy finds in the first cache what the observer has read.
  static void CopyOut(uint8_t* to, const uint8_t* from, uint64_t size_bytes, PieceObserver* observer) {
    constexpr uint64_t kTileBytes = 16 * 1024;
    const uint64_t tile_bytes = observer ? kTileBytes : size_bytes;
    for (uint64_t at = 0; at < size_bytes; at += tile_bytes) {
      const uint64_t part = std::min(tile_bytes, size_bytes - at);
      if (observer) observer->Passed(from + at, part);
      std::memcpy(to + at, from + at, part);
    }
  }

  static void CopyIn(uint8_t* to, const uint8_t* from, uint64_t size_bytes, PieceObserver* observer) {
    if (observer)
      observer->Copy(to, from, size_bytes);
    else
      StreamCopy(to, from, size_bytes);
  }

  SharedSegment segment_;
  const int end_;
  const Rank peer_;
  PeerProcess process_;
  PeerMemory peer_memory_;      // receiving thread only
  bool files_refused_ = false;  // sending thread only
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Link> MakeSharedMemoryLink(SharedSegment segment, int end, Rank peer, PeerProcess process) {
  return std::make_unique<SharedMemoryLink>(std::move(segment), end, peer, std::move(process));
}

}  // namespace kintsugi
