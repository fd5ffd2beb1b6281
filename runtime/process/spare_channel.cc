#include "runtime/process/spare_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace kintsugi {
namespace {

struct RankMessage {
  static constexpr uint64_t kMagic = 0x6b746f2d73706172;  // "kto-spar"
  uint64_t magic = kMagic;
  uint64_t size_bytes = sizeof(RankMessage);
  uint64_t incarnation = 0;
  int64_t rank = 0;
};

std::string ChannelName(int fd) { return "the spare's channel behind descriptor " + std::to_string(fd); }

}  // namespace

Result<SpareChannel> SpareChannel::Create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status(StatusCode::kResourceExhausted, std::string("no channel for a spare: ") + std::strerror(errno));
  return SpareChannel(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Status SpareChannel::Give(const RankIncarnation& who) {
  RankMessage message;
  message.incarnation = who.incarnation.value();
  message.rank = who.rank.value();
  if (::send(end_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof message) return Status::Ok();
  return {StatusCode::kUnavailable, std::string("the spare does not take its place: ") + std::strerror(errno)};
}

Result<RankIncarnation> AwaitRank(int fd) {
  RankMessage message;
  ssize_t size = 0;
  do {
    size = ::recv(fd, &message, sizeof message, MSG_TRUNC);
  } while (size < 0 && errno == EINTR);
  if (size == 0) return Status(StatusCode::kEnded, "the run ended while this spare waited for a place in it");
  if (size < 0) return Status(StatusCode::kInvalidArgument, ChannelName(fd) + ": " + std::strerror(errno));
  if (size != sizeof message || message.magic != RankMessage::kMagic || message.size_bytes != sizeof message ||
      message.rank < 0 || message.rank > INT32_MAX)
    return Status(StatusCode::kInvalidArgument,
                  ChannelName(fd) + ": " + std::to_string(size) +
                      " bytes that are no place: launcher and trainer must come from the same build");
  return RankIncarnation{Rank(static_cast<int32_t>(message.rank)), Incarnation(message.incarnation)};
}

}  // namespace kintsugi
