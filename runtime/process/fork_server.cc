#include "runtime/process/fork_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "runtime/process/pidfd.h"
#include "runtime/process/spawn_parts.h"

namespace kintsugi {
namespace {

constexpr std::string_view kReady = "ready", kPid = "pid ", kRefused = "refused ";
constexpr size_t kAnswerBytes = 4096;
constexpr size_t kPassedMax = 64;

bool SendWithFds(int socket, const std::string& text, const std::vector<int>& fds) {
  iovec piece{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kPassedMax)> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(text.size());
}

}  // namespace

Result<ForkServer> ForkServer::Create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError("no socket pair to a warm process", errno);
  return ForkServer(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Status ForkServer::GiveUp(const std::string& why) {
  ready_ = false;
  refusal_ = why;
  end_.Reset();
  return {StatusCode::kUnavailable, "the warm process cannot be forked: " + why};
}

Result<std::string> ForkServer::Hear(std::chrono::milliseconds limit) {
  pollfd waiting{end_.get(), POLLIN, 0};
  int found = 0;
  do {
    found = ::poll(&waiting, 1, static_cast<int>(limit.count()));
  } while (found < 0 && errno == EINTR);
  if (found == 0) return Status(StatusCode::kDeadlineExceeded, "it does not answer");
  std::string answer(kAnswerBytes, '\0');
  const ssize_t size = ::recv(end_.get(), answer.data(), answer.size(), 0);
  if (size <= 0) return Status(StatusCode::kUnavailable, "it has ended");
  answer.resize(static_cast<size_t>(size));
  return answer;
}

bool ForkServer::ready() {
  if (ready_ || !end_.valid()) return ready_;
  const Result<std::string> said = Hear(std::chrono::milliseconds(0));
  if (said.ok())
    ready_ = *said == kReady;
  else if (said.status().code() == StatusCode::kDeadlineExceeded)
    return false;
  if (!ready_)
    (void)GiveUp(!said.ok()                    ? said.status().message()
                 : said->starts_with(kRefused) ? said->substr(kRefused.size())
                                               : "it said '" + *said + "'");
  return ready_;
}

Result<SpawnedProcess> ForkServer::Fork(const ProcessSpec& spec, const std::function<Status(pid_t)>& before_program) {
  if (!ready()) return Status(StatusCode::kUnavailable, "the warm process is not ready: " + refusal_);
  KINTSUGI_RETURN_IF_ERROR(CheckSpec(spec));
  KINTSUGI_ASSIGN_OR_RETURN(auto out, MakeOutputPipe());
  KINTSUGI_ASSIGN_OR_RETURN(auto err, MakeOutputPipe());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError("no socket pair to start a process with", errno);
  const UniqueFd talk(ends[0]), its_talk(ends[1]);
  std::vector<int> fds = {out.second.get(), err.second.get(), its_talk.get()};
  for (const PassedFd& passed : spec.passed_fds) fds.push_back(passed.fd);
  if (fds.size() > kPassedMax)
    return Status(StatusCode::kInvalidArgument, std::to_string(fds.size()) + " descriptors are too many to pass");
  std::string environment;
  for (const auto& [name, value] : ChildEnvironment(spec)) environment += name + "=" + value + '\0';
  if (!SendWithFds(end_.get(), environment, fds))
    return GiveUp(std::string("it cannot be told what to become: ") + std::strerror(errno));
  const Result<std::string> said = Hear(kForkLimit);
  if (!said.ok()) return GiveUp(said.status().message());
  SpawnedProcess process;
  const char* const end = said->data() + said->size();
  if (!said->starts_with(kPid) || std::from_chars(said->data() + kPid.size(), end, process.pid).ptr != end ||
      process.pid <= 0)
    return GiveUp(said->starts_with(kRefused) ? said->substr(kRefused.size()) : "it said '" + *said + "'");
  process.pidfd.Reset(PidfdOpen(process.pid));
  Status status = process.pidfd.valid() ? Status::Ok() : SystemError("no pidfd for a forked process", errno);
  if (status.ok() && before_program != nullptr) status = before_program(process.pid);
  if (status.ok() && ::send(talk.get(), &kGo, 1, MSG_NOSIGNAL) != 1)
    status = SystemError("a forked process ended before it began", errno);
  if (!status.ok()) {
    (void)KillAndReap(process.pid, process.pidfd.get());
    return status;
  }
  process.stdout_read = std::move(out.first);
  process.stderr_read = std::move(err.first);
  return process;
}

}  // namespace kintsugi
