#include "replica/stream/tcp_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "replica/stream/fresh_pages.h"
#include "runtime/base/check.h"

namespace kintsugi {
namespace {

// What an observer is shown at a time: half of a core's second-level cache, so that its bytes are still there.
constexpr uint64_t kTcpPieceBytes = 512 << 10;
// Of the socket, each way; the kernel takes twice of it. More than what a third-level cache holds beside the pieces is
// slower.
constexpr int kBufferBytes = 1 << 20;
// Bytes of a peer's that nobody will read, thrown away at the end at most.
constexpr uint64_t kUnreadBytesMax = 64 << 20;
constexpr std::string_view kPeerClosed = "the rank has closed the connection";

// The buffers that the kernel grows by itself stay small for too long; those of a fixed size would be smaller still
// where the host allows less than is asked for.
void SetBuffer(int socket, int option, const char* limit_file) {
  int64_t limit = 0;
  if (!(std::ifstream(limit_file) >> limit) || limit < kBufferBytes) return;
  setsockopt(socket, SOL_SOCKET, option, &kBufferBytes, sizeof(kBufferBytes));
}

class TcpLink final : public Link {
 public:
  TcpLink(UniqueFd socket, Rank peer) : socket_(std::move(socket)), peer_(peer) {
    KINTSUGI_CHECK(socket_.valid(), "a link is made of a connection");
    // Each wait has a limit of its own, so no call on the socket may wait by itself.
    fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    const int at_once = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    SetBuffer(socket_.get(), SO_SNDBUF, "/proc/sys/net/core/wmem_max");
    SetBuffer(socket_.get(), SO_RCVBUF, "/proc/sys/net/core/rmem_max");
  }

  // A socket that is closed with bytes unread resets the connection, and the peer would lose what was sent to it.
  ~TcpLink() override {
    if (aborted_.load()) return;
    shutdown(socket_.get(), SHUT_WR);
    for (uint64_t unread = 0; unread < kUnreadBytesMax;) {
      const ssize_t dropped = recv(socket_.get(), nullptr, kUnreadBytesMax, MSG_TRUNC);
      if (dropped <= 0) break;
      unread += static_cast<uint64_t>(dropped);
    }
  }

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    const Wait wait{"send", SteadyClock::SteadyNow(), deadline};
    const uint8_t* data = internal::SourceOf(memory, offset, size_bytes);
    const uint64_t first = std::min(kTcpPieceBytes, size_bytes);
    KINTSUGI_RETURN_IF_ERROR(Write(&size_bytes, sizeof(size_bytes), data, first, wait));
    for (uint64_t at = 0; at < size_bytes;) {
      const uint64_t piece = std::min(kTcpPieceBytes, size_bytes - at);
      if (at > 0) KINTSUGI_RETURN_IF_ERROR(Write(nullptr, 0, data + at, piece, wait));
      if (observer) observer->Passed(data + at, piece);
      at += piece;
    }
    return Status::Ok();
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    const Wait wait{"receive", SteadyClock::SteadyNow(), deadline};
    uint64_t length = 0;
    KINTSUGI_RETURN_IF_ERROR(Read(&length, sizeof(length), wait));
    if (length != size_bytes) return internal::LinkSizeMismatch(*this, size_bytes, length);
    for (uint64_t at = 0; at < size_bytes;) {
      const uint64_t piece = std::min(kTcpPieceBytes, size_bytes - at);
      auto* target = static_cast<uint8_t*>(data) + at;
      FillFreshPages(target, piece);
      KINTSUGI_RETURN_IF_ERROR(Read(target, piece, wait));
      if (observer) observer->Passed(target, piece);
      at += piece;
    }
    return Status::Ok();
  }

  void Abort() override {
    aborted_.store(true);
    shutdown(socket_.get(), SHUT_RDWR);  // wakes who waits here, and tells the peer
  }
  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "tcp"; }

 private:
  struct Wait {
    std::string_view what;
    TimePoint start, deadline;
  };

  // Writes the head, which may be empty, and the data.
  Status Write(const void* head, uint64_t head_bytes, const void* data, uint64_t data_bytes, const Wait& wait) {
    iovec parts[] = {{const_cast<void*>(head), head_bytes}, {const_cast<void*>(data), data_bytes}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    while (parts[0].iov_len + parts[1].iov_len > 0) {
      if (aborted_.load()) return internal::LinkAborted(*this, wait.what);
      const ssize_t written = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
      if (written < 0) {
        KINTSUGI_RETURN_IF_ERROR(AfterError(POLLOUT, wait));
        continue;
      }
      auto left = static_cast<size_t>(written);
      for (iovec& part : parts) {
        const size_t gone = std::min(left, part.iov_len);
        part.iov_base = static_cast<uint8_t*>(part.iov_base) + gone;
        part.iov_len -= gone;
        left -= gone;
      }
      KINTSUGI_CHECK(left == 0, "what was written is part of the message");
    }
    return Status::Ok();
  }

  Status Read(void* data, uint64_t size_bytes, const Wait& wait) {
    for (uint64_t at = 0; at < size_bytes;) {
      if (aborted_.load()) return internal::LinkAborted(*this, wait.what);
      const ssize_t got = recv(socket_.get(), static_cast<uint8_t*>(data) + at, size_bytes - at, 0);
      if (got > 0) {
        at += static_cast<uint64_t>(got);
      } else if (got < 0) {
        KINTSUGI_RETURN_IF_ERROR(AfterError(POLLIN, wait));
      } else {
        if (aborted_.load()) return internal::LinkAborted(*this, wait.what);
        return internal::LinkPeerGone(*this, wait.what, kPeerClosed);
      }
    }
    return Status::Ok();
  }

  // What errno says: waits where the socket is not ready, else the end of the link.
  Status AfterError(short event, const Wait& wait) {
    const int error = errno;
    if (aborted_.load()) return internal::LinkAborted(*this, wait.what);
    if (error == EINTR) return Status::Ok();
    if (error != EAGAIN && error != EWOULDBLOCK) return internal::LinkPeerGone(*this, wait.what, std::strerror(error));
    constexpr int64_t kLongestMs = 60'000;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wait.deadline - SteadyClock::SteadyNow()).count();
    if (left <= 0) return internal::LinkDeadline(*this, wait.what, wait.start, wait.deadline);
    // A peer that has closed reads no more: a sender that waits for room would wait for ever where the connection is
    // not reset.
    pollfd socket{socket_.get(), static_cast<short>(event | POLLRDHUP), 0};
    poll(&socket, 1, static_cast<int>(std::min<int64_t>(left, kLongestMs)));
    if (event == POLLOUT && (socket.revents & POLLRDHUP) != 0 && !aborted_.load())
      return internal::LinkPeerGone(*this, wait.what, kPeerClosed);
    return Status::Ok();
  }

  const UniqueFd socket_;
  const Rank peer_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Link> MakeTcpLink(UniqueFd socket, Rank peer) {
  return std::make_unique<TcpLink>(std::move(socket), peer);
}

}  // namespace kintsugi
