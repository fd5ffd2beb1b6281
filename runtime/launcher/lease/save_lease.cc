#include "runtime/launcher/lease/save_lease.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "runtime/launcher/lease/lease_helper.h"

namespace kintsugi {
namespace {

// Long enough to see an owner on another host touch its file, or to see that it does not any more.
constexpr Duration kTakeLimit = std::chrono::seconds(60);
constexpr auto kGiveBackLimit = std::chrono::seconds(1);

struct Message {
  char what = kLeaseOver;  // also where the helper is gone
  std::string text;
};

Message Hear(int socket) {
  std::array<char, 4096> bytes;
  ssize_t size = 0;
  do {
    size = recv(socket, bytes.data(), bytes.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return {};
  return {bytes[0], std::string(bytes.data() + 1, static_cast<size_t>(size) - 1)};
}

}  // namespace

// The helper process, and the thread that hears it.
class SaveLease::Helper {
 public:
  Helper(UniqueFd socket, pid_t pid, std::string root, std::shared_ptr<LogSink> log)
      : socket_(std::move(socket)), pid_(pid), root_(std::move(root)), log_(std::move(log)) {}

  ~Helper() {
    kill(pid_, SIGKILL);  // one that hangs in the kernel stays there: nobody waits for it
    shutdown(socket_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    (void)waitpid(pid_, nullptr, WNOHANG);
  }

  Status AwaitTaken() {
    const TimePoint until = SteadyClock::SteadyNow() + kTakeLimit;
    for (;;) {
      const auto left = (until - SteadyClock::SteadyNow()) / std::chrono::milliseconds(1);
      pollfd ready{socket_.get(), POLLIN, 0};
      const int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
      if (polled < 0 && errno == EINTR) continue;
      if (polled <= 0) return Unavailable("did not answer within 60 s");
      const Message message = Hear(socket_.get());
      switch (message.what) {
        case kLeaseTaken:
          return Status::Ok();
        case kLeaseRefused:
          return {StatusCode::kFailedPrecondition,
                  "--save-dir '" + root_ + "' belongs to " + message.text +
                      ", which lives: give this run another one, or end that one first"};
        case kLeaseWaits:
          log_->Write(LogLevel::kWarning, LogLine("save_dir_waits", {{"directory", root_},
                                                                     {"for", message.text},
                                                                     {"why", "it may be gone: known within 30 s"}}));
          break;
        case kLeaseUnavailable:
          return Unavailable(message.text);
        default:
          return Unavailable("cannot be watched over: the helper has ended");
      }
    }
  }

  void Listen() {
    sigset_t all, before;  // signals are for the thread that handles them
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void GiveBack() {
    const char what = kLeaseGiveBack;
    (void)send(socket_.get(), &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    MutexLock lock(mutex_);
    changed_.WaitFor(lock, kGiveBackLimit, [this]() KINTSUGI_REQUIRES(mutex_) { return over_; });
  }

 private:
  Status Unavailable(const std::string& why) const {
    return {StatusCode::kUnavailable, "--save-dir '" + root_ + "': " + why};
  }

  void Run() {
    for (;;) {
      const Message message = Hear(socket_.get());
      if (message.what == kLeaseLost)
        log_->Write(LogLevel::kError, LogLine("save_dir_lost", {{"directory", root_}, {"why", message.text}}));
      if (message.what != kLeaseOver) continue;
      const MutexLock lock(mutex_);
      over_ = true;
      changed_.NotifyAll();
      return;
    }
  }

  const UniqueFd socket_;
  const pid_t pid_;
  const std::string root_;
  const std::shared_ptr<LogSink> log_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

SaveLease::SaveLease(std::unique_ptr<Helper> helper) : helper_(std::move(helper)) {
  KINTSUGI_CHECK(helper_ != nullptr, "nobody holds the lease");
}

SaveLease::~SaveLease() {
  if (gives_back_) helper_->GiveBack();
}

Result<std::unique_ptr<SaveLease>> SaveLease::Start(const std::string& root, const std::string& owner, bool takes,
                                                    std::shared_ptr<LogSink> log) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status(StatusCode::kUnavailable, std::string("--save-dir: no socket pair: ") + std::strerror(errno));
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const int launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) LeaseHelperMain(theirs.get(), root, owner, launcher, takes);
  if (pid < 0) return Status(StatusCode::kUnavailable, std::string("--save-dir: no helper: ") + std::strerror(errno));
  auto helper = std::make_unique<Helper>(std::move(ours), pid, root, std::move(log));
  if (takes) KINTSUGI_RETURN_IF_ERROR(helper->AwaitTaken());
  helper->Listen();
  return std::unique_ptr<SaveLease>(new SaveLease(std::move(helper)));
}

Result<std::unique_ptr<SaveLease>> SaveLease::Take(const std::string& root, const std::string& owner,
                                                   std::shared_ptr<LogSink> log) {
  return Start(root, owner, true, std::move(log));
}

Result<std::unique_ptr<SaveLease>> SaveLease::GoOn(const std::string& root, const std::string& owner,
                                                   std::shared_ptr<LogSink> log) {
  return Start(root, owner, false, std::move(log));
}

}  // namespace kintsugi
