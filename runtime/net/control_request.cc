#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/net/control_socket.h"
#include "runtime/net/control_wire.h"
#include "runtime/net/unix_socket.h"

namespace kintsugi::net {
namespace {

constexpr size_t kLineBytesMax = 1u << 20;

class Exchange {
 public:
  Exchange(UniqueFd fd, std::string path, Duration timeout)
      : fd_(std::move(fd)), path_(std::move(path)), timeout_(timeout), deadline_(SteadyClock::SteadyNow() + timeout) {}

  // True when the whole line is written; false when the run has ended its side early, which may come with an answer.
  Result<bool> Write(const std::string& line);
  Result<std::string> ReadLine();

 private:
  Status WaitFor(short events);

  const UniqueFd fd_;
  const std::string path_;
  const Duration timeout_;
  const TimePoint deadline_;
};

Status Exchange::WaitFor(short events) {
  while (true) {
    const auto left = (deadline_ - SteadyClock::SteadyNow()) / std::chrono::milliseconds(1);
    pollfd waiting{.fd = fd_.get(), .events = events, .revents = 0};
    const int ready = left < 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left + 1, 60'000)));
    if (ready > 0) return Status::Ok();
    if (ready < 0 && errno != EINTR) return {StatusCode::kInternal, path_ + ": poll: " + std::strerror(errno)};
    if (SteadyClock::SteadyNow() >= deadline_) {
      return {StatusCode::kDeadlineExceeded, path_ + ": the run did not answer within the limit of " +
                                                 std::to_string(timeout_ / std::chrono::milliseconds(1)) +
                                                 " ms: it may be busy or stopped; try again or look at its log"};
    }
  }
}

Result<bool> Exchange::Write(const std::string& line) {
  size_t written = 0;
  while (written < line.size()) {
    KINTSUGI_RETURN_IF_ERROR(WaitFor(POLLOUT));
    const ssize_t put = ::send(fd_.get(), line.data() + written, line.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) written += static_cast<size_t>(put);
    if (put < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
    if (put < 0 && errno != EAGAIN && errno != EINTR)
      return Status(StatusCode::kCommFailure, path_ + ": " + std::strerror(errno));
  }
  return true;
}

Result<std::string> Exchange::ReadLine() {
  std::string line;
  std::array<char, 16384> buffer;
  while (true) {
    KINTSUGI_RETURN_IF_ERROR(WaitFor(POLLIN));
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0)
      return Status(StatusCode::kCommFailure,
                    path_ + ": the run closed the connection without an answer: it may just have ended");
    line.append(buffer.data(), static_cast<size_t>(got));
    if (const size_t end = line.find('\n'); end != std::string::npos) return line.substr(0, end);
    if (line.size() > kLineBytesMax) return Status(StatusCode::kDataLoss, path_ + ": the answer is longer than 1 MiB");
  }
}

}  // namespace

Result<std::string> ControlRequest(const std::string& path, const std::string& json, Duration timeout) {
  if (json.size() > kLineBytesMax || json.find('\n') != std::string::npos) {
    return Status(StatusCode::kInvalidArgument, "a control request is one line of JSON of at most 1 MiB, not " +
                                                    std::to_string(json.size()) + " bytes with or without line breaks");
  }
  KINTSUGI_ASSIGN_OR_RETURN(UnixSocketPath place, OpenUnixSocketPath(path));
  KINTSUGI_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(place));
  if (Status owner = CheckCaller(::geteuid(), PeerUser(fd.get())); !owner.ok()) return owner.Annotate(path);
  Exchange exchange(std::move(fd), path, timeout);
  KINTSUGI_ASSIGN_OR_RETURN(const bool written, exchange.Write(json + '\n'));
  (void)written;  // a refusal may come before the whole request is read, and tells more than a broken pipe
  KINTSUGI_ASSIGN_OR_RETURN(std::string line, exchange.ReadLine());
  KINTSUGI_RETURN_IF_ERROR(ParseTransportError(line).Annotate(path));
  return line;
}

}  // namespace kintsugi::net
