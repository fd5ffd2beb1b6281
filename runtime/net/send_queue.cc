#include "runtime/net/send_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace kintsugi::net {
namespace {

constexpr size_t kPiecesPerWrite = 64;

}  // namespace

bool SendQueue::PushFrame(std::string payload) {
  if (entries_.size() >= frames_max_ || bytes_ + kFrameHeaderBytes + payload.size() > bytes_max_) return false;
  bytes_ += kFrameHeaderBytes + payload.size();
  entries_.push_back({EncodeFrameHeader(payload.size()), kFrameHeaderBytes, std::move(payload)});
  return true;
}

void SendQueue::PushRaw(std::string bytes) {
  bytes_ += bytes.size();
  entries_.push_back({{}, 0, std::move(bytes)});
}

int SendQueue::Flush(int fd) {
  while (!entries_.empty()) {
    std::array<iovec, kPiecesPerWrite> pieces;
    size_t count = 0;
    size_t skip = front_offset_;
    const auto add = [&](char* data, size_t size) {
      const size_t skipped = std::min(skip, size);
      skip -= skipped;
      if (size > skipped) pieces[count++] = {data + skipped, size - skipped};
    };
    for (Entry& entry : entries_) {
      if (count + 2 > pieces.size()) break;
      add(entry.header.data(), entry.header_bytes);
      add(entry.body.data(), entry.body.size());
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
    Remove(static_cast<size_t>(written));
  }
  return 0;
}

int SendQueue::FlushSealed(int fd, TlsChannel& tls) {
  for (;;) {
    while (!tls.output().empty()) {
      const ssize_t written = ::send(fd, tls.output().data(), tls.output().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
      tls.Sent(static_cast<size_t>(written));
    }
    Remove(std::exchange(sealed_bytes_, 0));
    if (entries_.empty() || !tls.open()) return 0;
    const std::string record = NextRecord();
    sealed_bytes_ = record.size();
    tls.Seal(record);
  }
}

// As much as fits into one record, so that small frames share one.
std::string SendQueue::NextRecord() const {
  std::string record;
  size_t skip = front_offset_;
  const auto add = [&](const char* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    record.append(data + skipped, std::min(size - skipped, TlsChannel::kRecordBytes - record.size()));
  };
  for (const Entry& entry : entries_) {
    if (record.size() == TlsChannel::kRecordBytes) break;
    add(entry.header.data(), entry.header_bytes);
    add(entry.body.data(), entry.body.size());
  }
  return record;
}

void SendQueue::Remove(size_t bytes) {
  bytes_ -= bytes;
  bytes_sent_ += bytes;
  front_offset_ += bytes;
  while (!entries_.empty() && front_offset_ >= entries_.front().size()) {
    front_offset_ -= entries_.front().size();
    if (entries_.front().header_bytes > 0) ++frames_sent_;
    entries_.pop_front();
  }
}

void SendQueue::Clear() {
  entries_.clear();
  front_offset_ = 0;
  sealed_bytes_ = 0;
  bytes_ = 0;
}

}  // namespace kintsugi::net
