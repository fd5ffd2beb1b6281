#include "tools/doctor/conversation.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kintsugi::doctor {
namespace {

constexpr auto kHandshakeLimit = std::chrono::seconds(5);

net::Identity Myself() { return {.job = "doctor", .role = std::string(net::kLauncherRole)}; }

}  // namespace

Status Conversation::Lost(const std::string& why) const { return {StatusCode::kUnavailable, place_ + ": " + why}; }

Status Conversation::Await(short events, TimePoint until) const {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - SteadyClock::SteadyNow()).count();
    pollfd one{fd_.get(), events, 0};
    const int ready = left <= 0 ? 0 : poll(&one, 1, static_cast<int>(left) + 1);
    if (ready > 0) return Status::Ok();
    if (ready == 0) return {StatusCode::kDeadlineExceeded, place_ + ": no answer"};
    if (errno != EINTR) return Lost(std::strerror(errno));
  }
}

Status Conversation::Write(std::string_view bytes, TimePoint until) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      KINTSUGI_RETURN_IF_ERROR(Await(POLLOUT, until));
    } else if (errno != EINTR) {
      return Lost(std::strerror(errno));
    }
  }
  return Status::Ok();
}

Status Conversation::Read(TimePoint until) {
  static constexpr size_t kPiece = 256 << 10;
  while (true) {
    const size_t before = unread_.size();
    unread_.resize(before + kPiece);
    const ssize_t got = recv(fd_.get(), unread_.data() + before, kPiece, 0);
    const int error = errno;
    unread_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) return Status::Ok();
    if (got == 0) return Lost("it closed the connection");
    if (error == EAGAIN) {
      KINTSUGI_RETURN_IF_ERROR(Await(POLLIN, until));
    } else if (error != EINTR) {
      return Lost(std::strerror(error));
    }
  }
}

Status Conversation::Introduce(std::unique_ptr<net::Handshake> handshake, TimePoint until) {
  KINTSUGI_RETURN_IF_ERROR(Write(handshake->Begin(), until));
  while (true) {
    std::string_view bytes = unread_;
    const net::HandshakeOutput step = handshake->Consume(&bytes);
    unread_.erase(0, unread_.size() - bytes.size());
    const Status written = Write(step.send, until);
    if (step.failure) return Lost("the handshake: " + step.failure->status.message());
    KINTSUGI_RETURN_IF_ERROR(written);
    if (step.done) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(Read(until));
  }
}

Result<Conversation> Conversation::Call(const net::SocketAddress& place, const SharedSecret& secret, TimePoint until) {
  KINTSUGI_ASSIGN_OR_RETURN(UniqueFd fd, net::BeginConnect(place));
  Conversation line(std::move(fd), place.ToString());
  KINTSUGI_RETURN_IF_ERROR(line.Await(POLLOUT, until));
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(line.fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  // What the system gives up after a while and what we give up mean the same.
  if (error != 0) return line.Lost(error == ETIMEDOUT ? "no answer" : std::strerror(error));
  net::Nonce nonce{};
  KINTSUGI_RETURN_IF_ERROR(net::FillRandom(nonce.data(), nonce.size()));
  KINTSUGI_RETURN_IF_ERROR(line.Introduce(net::MakeClientHandshake(Myself(), secret, nonce), until));
  return line;
}

Result<Conversation> Conversation::Answer(UniqueFd fd, const SharedSecret& secret, TimePoint until) {
  const std::string place = net::PeerAddress(fd.get()).ToString();
  Conversation line(std::move(fd), place);
  net::Nonce nonce{};
  net::SessionId session{};
  KINTSUGI_RETURN_IF_ERROR(net::FillRandom(nonce.data(), nonce.size()));
  KINTSUGI_RETURN_IF_ERROR(net::FillRandom(session.data(), session.size()));
  KINTSUGI_RETURN_IF_ERROR(line.Introduce(net::MakeServerHandshake(Myself(), secret, nonce, session), until));
  return line;
}

Status Conversation::Send(std::string_view frame, TimePoint until) {
  const net::FrameHeader header = net::EncodeFrameHeader(frame.size());
  KINTSUGI_RETURN_IF_ERROR(Write({header.data(), header.size()}, until));
  return Write(frame, until);
}

Result<std::string> Conversation::Receive(TimePoint until) {
  while (true) {
    std::string_view bytes = unread_;
    const net::FrameEvent event = frames_->Next(&bytes);
    if (event.kind == net::FrameEvent::Kind::kFrame) {
      std::string frame(event.payload);
      unread_.erase(0, unread_.size() - bytes.size());
      return frame;
    }
    unread_.erase(0, unread_.size() - bytes.size());
    if (event.kind != net::FrameEvent::Kind::kNeedMore) return Lost("it sent what is no frame");
    KINTSUGI_RETURN_IF_ERROR(Read(until));
  }
}

Result<Json> Conversation::Hear(TimePoint until) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string frame, Receive(until));
  Json said = Json::parse(frame, nullptr, false);
  if (!said.is_object()) return Status(StatusCode::kInvalidArgument, place_ + " said what is no JSON object");
  return said;
}

Door::Door(UniqueFd listening, SharedSecret secret, std::function<void(Conversation)> serve)
    : listening_(std::move(listening)),
      secret_(std::move(secret)),
      serve_(std::move(serve)),
      thread_([this] { Listen(); }) {}

Door::~Door() {
  closing_ = true;
  thread_.join();
  while (callers_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void Door::Listen() {
  while (!closing_) {
    pollfd one{listening_.get(), POLLIN, 0};
    if (poll(&one, 1, 50) <= 0) continue;
    UniqueFd fd = net::AcceptTcp(listening_.get());
    if (!fd.valid() || callers_ >= kCallersMax) continue;
    ++callers_;
    std::thread([this, fd = std::move(fd)]() mutable {
      Result<Conversation> line =
          Conversation::Answer(std::move(fd), secret_, SteadyClock::SteadyNow() + kHandshakeLimit);
      try {
        if (line.ok()) serve_(*std::move(line));
      } catch (const Json::exception&) {  // one of another build, whose words mean something else: it is hung up on
      }
      --callers_;
    }).detach();
  }
}

}  // namespace kintsugi::doctor
