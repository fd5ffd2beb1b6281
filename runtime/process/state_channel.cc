#include "runtime/process/state_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace kintsugi {
namespace {

// The kernel takes 253 descriptors in one message.
constexpr size_t kFilesPerPacket = 200;
constexpr Duration kSendLimit = std::chrono::seconds(1);

struct Packet {
  static constexpr uint64_t kMagic = 0x6b74732d68656c64;
  uint64_t magic = kMagic;
  uint64_t word = 0;
  uint64_t shape = 0;
  uint64_t total = 0;  // files of the whole message
  uint64_t count = 0;  // files with this packet
};

Status Refused(const std::string& why) { return {StatusCode::kInvalidArgument, "state channel: " + why}; }

// Until `fd` is ready for `events`, or the deadline.
bool WaitFor(int fd, short events, TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - SteadyClock::SteadyNow();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Duration())).count();
    pollfd poll_fd{fd, events, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(ms, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (left.count() <= 0) return false;
  }
}

}  // namespace

Result<std::pair<StateChannel, StateChannel>> StateChannel::CreatePair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status(StatusCode::kResourceExhausted, std::string("no channel for state memory: ") + std::strerror(errno));
  return std::pair(StateChannel(UniqueFd(ends[0])), StateChannel(UniqueFd(ends[1])));
}

Status StateChannel::SendPacket(StateWord word, uint64_t shape, uint64_t total, const int* files, size_t count) {
  Packet packet{Packet::kMagic, static_cast<uint64_t>(word), shape, total, count};
  iovec data{&packet, sizeof packet};
  alignas(cmsghdr) char control[CMSG_SPACE(kFilesPerPacket * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), files, count * sizeof(int));
  }
  const TimePoint deadline = SteadyClock::SteadyNow() + kSendLimit;
  for (;;) {
    const ssize_t sent = ::sendmsg(end_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == sizeof packet) return Status::Ok();
    // ETOOMANYREFS: descriptors that nobody has taken yet; they are when the other end reads.
    const bool full = sent < 0 && (errno == EAGAIN || errno == ETOOMANYREFS);
    if (sent < 0 && errno == EINTR) continue;
    if (full && SteadyClock::SteadyNow() < deadline) {
      if (errno == EAGAIN)
        (void)WaitFor(end_.get(), POLLOUT, deadline);
      else
        (void)::poll(nullptr, 0, 1);
      continue;
    }
    return {StatusCode::kUnavailable, std::string("state channel: ") + std::strerror(errno)};
  }
}

Status StateChannel::Send(StateWord word, uint64_t shape, const std::vector<int>& files) {
  if (files.size() > kFilesMax)
    return Refused(std::to_string(files.size()) + " memory files; the limit is " + std::to_string(kFilesMax));
  size_t sent = 0;
  do {
    const size_t count = std::min(kFilesPerPacket, files.size() - sent);
    KINTSUGI_RETURN_IF_ERROR(SendPacket(word, shape, files.size(), files.data() + sent, count));
    sent += count;
  } while (sent < files.size());
  return Status::Ok();
}

Result<StateMessage> StateChannel::Receive(TimePoint deadline) {
  for (;;) {
    if (deadline > TimePoint() && !WaitFor(end_.get(), POLLIN, deadline))
      return Status(StatusCode::kNotFound, "state channel: no answer in time");
    Packet packet;
    iovec data{&packet, sizeof packet};
    alignas(cmsghdr) char control[CMSG_SPACE(kFilesPerPacket * sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = ::recvmsg(end_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return Status(StatusCode::kNotFound, "state channel: nothing is there");
    if (size < 0) return Refused(std::strerror(errno));
    // Taken before anything is checked: they are ours to close.
    std::vector<UniqueFd> files;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        files.emplace_back(fd);
      }
    }
    if (size == 0) return Status(StatusCode::kEnded, "state channel: the other end is gone");
    if (size != sizeof packet || packet.magic != Packet::kMagic || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        packet.count != files.size() || packet.total > kFilesMax)
      return Refused("what came is no message of it");
    if (incoming_ && (packet.word != static_cast<uint64_t>(incoming_->word) || packet.count > missing_)) {
      incoming_.reset();
      return Refused("a message of several parts broke off");
    }
    if (!incoming_) {
      incoming_ = StateMessage{static_cast<StateWord>(packet.word), packet.shape, {}};
      missing_ = packet.total;
      if (packet.count > missing_) {
        incoming_.reset();
        return Refused("more files than were announced");
      }
    }
    missing_ -= packet.count;
    std::move(files.begin(), files.end(), std::back_inserter(incoming_->files));
    if (missing_ == 0) return std::move(*std::exchange(incoming_, std::nullopt));
    if (packet.count == 0) {
      incoming_.reset();
      return Refused("a part without files");
    }
  }
}

}  // namespace kintsugi
