// SendQueue: what a connection has still to write, bounded in frames and bytes, written with gathering system calls.
//
// Threads: one. Not a seam of its own: TcpConnection's outgoing half.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "runtime/net/frame.h"
#include "runtime/net/tls_channel.h"
#include "runtime/net/transport_options.h"

namespace kintsugi::net {

class SendQueue {
 public:
  explicit SendQueue(const TransportLimits& limits)
      : frames_max_(limits.queue_frames), bytes_max_(limits.queue_bytes) {}

  // False: there is no room for it.
  bool PushFrame(std::string payload);
  // Handshake bytes, which are framed already; not bounded (the handshake is).
  void PushRaw(std::string bytes);

  // Writes as much as the socket takes: 0 when the queue is empty, EAGAIN when the socket is full, else the errno.
  int Flush(int fd);
  // The same through TLS, whose own words go first. What the queue holds waits until the channel is open.
  int FlushSealed(int fd, TlsChannel& tls);

  bool empty() const { return entries_.empty(); }
  size_t frames() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }
  uint64_t frames_sent() const { return frames_sent_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  void Clear();

 private:
  struct Entry {
    FrameHeader header{};
    size_t header_bytes = 0;
    std::string body;
    size_t size() const { return header_bytes + body.size(); }
  };
  void Remove(size_t bytes);
  std::string NextRecord() const;

  const size_t frames_max_;
  const size_t bytes_max_;
  std::deque<Entry> entries_;
  size_t front_offset_ = 0;  // bytes of the first entry that are written already
  size_t sealed_bytes_ = 0;  // of the queue, in the channel's output: removed once that is written
  size_t bytes_ = 0;
  uint64_t frames_sent_ = 0;
  uint64_t bytes_sent_ = 0;
};

}  // namespace kintsugi::net
