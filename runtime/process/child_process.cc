#include "runtime/process/child_process.h"

#include <poll.h>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/process/fork_server.h"
#include "runtime/process/guardian.h"
#include "runtime/process/oom_monitor.h"
#include "runtime/process/orphans.h"
#include "runtime/process/output_pump.h"
#include "runtime/process/pidfd.h"
#include "runtime/process/spawn.h"

namespace kintsugi {
namespace {

// What a pipe holds by default; read at the moment of the exit for the last lines of the error output.
constexpr size_t kPendingBytes = 64 * 1024;
// A process that has ended is reaped at once, unless another one traces it and has not let go: it is asked for again
// and again, for so long. Its memory is gone in any case.
constexpr std::chrono::milliseconds kReapEvery{10};
constexpr std::chrono::seconds kTracedLimit{2};
// After the exit, output is read on for at most so much and so long: descendants may hold the pipe open.
constexpr size_t kRestBytes = 4 * 1024 * 1024;
constexpr std::chrono::milliseconds kRestTime{500};

void Leave(pid_t pid) {
  const MutexLock paused(ReapingMutex());
  LeaveToReaping(pid);
}

}  // namespace

class ChildProcess::Impl : public std::enable_shared_from_this<ChildProcess::Impl> {
 public:
  Impl(boost::asio::io_context& io, SpawnedProcess& process, bool own_group, Callbacks callbacks,
       ProcessHelpers helpers)
      : pid_(process.pid),
        own_group_(own_group),
        callbacks_(std::move(callbacks)),
        helpers_(helpers),
        pidfd_(io, process.pidfd.get()),
        reap_timer_(io),
        rest_timer_(io) {
    (void)process.pidfd.Release();
  }

  void Start(boost::asio::io_context& io, SpawnedProcess process) {
    stdout_ = MakePump(io, std::move(process.stdout_read), OutputStream::kStdout);
    stderr_ = MakePump(io, std::move(process.stderr_read), OutputStream::kStderr);
    stdout_->Start();
    stderr_->Start();
    WaitForExit();
  }

  pid_t pid() const { return pid_; }
  bool running() const { return running_; }

  Status Kill(int signal) {
    if (!running_) return HasEnded();
    if (PidfdSendSignal(pidfd_.native_handle(), signal) != 0) return SignalFailure(signal, errno);
    NoteSent(signal);
    return Status::Ok();
  }

  Status KillGroup(int signal) {
    if (!running_) return HasEnded();
    if (!own_group_) {
      return Status(StatusCode::kFailedPrecondition,
                    "process " + std::to_string(pid_) + " was started without a process group of its own");
    }
    if (::kill(-pid_, signal) != 0) return SignalFailure(signal, errno);
    NoteSent(signal);
    return Status::Ok();
  }

  // The owner is gone: nothing of the process stays, and nobody is called any more.
  void Abandon() {
    abandoned_ = true;
    stdout_->Close();
    stderr_->Close();
    rest_timer_.cancel();
    reap_timer_.cancel();
    if (running_) {
      EndGroup();
      // Those that were all killed before are waited for together, not one after the other.
      const auto waited =
          killed_at_
              ? std::chrono::milliseconds((SteadyClock::SteadyNow() - *killed_at_) / std::chrono::milliseconds(1))
              : std::chrono::milliseconds(0);
      Leave(pid_);
      (void)KillAndReap(pid_, pidfd_.native_handle(),
                        std::max<std::chrono::milliseconds>(kReapLimit - waited, std::chrono::milliseconds(0)));
      running_ = false;
    }
    boost::system::error_code ignored;
    pidfd_.close(ignored);
    // A callback may be what is running right now; it is destroyed with the last handler instead.
  }

 private:
  std::shared_ptr<OutputPump> MakePump(boost::asio::io_context& io, UniqueFd pipe, OutputStream stream) {
    const std::weak_ptr<Impl> weak = weak_from_this();
    return std::make_shared<OutputPump>(
        io, std::move(pipe),
        [weak, stream](std::string_view line) {
          if (const std::shared_ptr<Impl> self = weak.lock()) self->OnLine(stream, line);
        },
        [weak] {
          if (const std::shared_ptr<Impl> self = weak.lock()) self->OnPumpEnd();
        });
  }

  Status HasEnded() const {
    return Status(StatusCode::kFailedPrecondition, "process " + std::to_string(pid_) + " has ended");
  }

  Status SignalFailure(int signal, int error) const {
    return Status(
        error == EINVAL ? StatusCode::kInvalidArgument : StatusCode::kPermissionDenied,
        "cannot send " + SignalName(signal) + " to process " + std::to_string(pid_) + ": " + std::strerror(error));
  }

  void NoteSent(int signal) {
    sent_.insert(signal);
    if (signal == SIGKILL && !killed_at_) killed_at_ = SteadyClock::SteadyNow();
  }

  // While the leader is not reaped, its number cannot become another group's.
  void EndGroup() {
    if (own_group_) ::kill(-pid_, SIGKILL);
    if (own_group_ && helpers_.guardian != nullptr) helpers_.guardian->Release(pid_);
  }

  void WaitForExit() {
    pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (self->abandoned_ || error) return;
                        self->HasReallyEnded() ? self->OnExit() : self->WaitForExit();
                      });
  }

  // Asio may wake a wait for what had become of another descriptor of the same number, closed within the same turn of
  // the loop: here of the process before this one. Its word alone would have us kill a healthy process.
  bool HasReallyEnded() {
    pollfd look{pidfd_.native_handle(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  }

  // Nothing: a debugger that traces the process still holds it.
  std::optional<ExitCause> TryReap() {
    ExitCause cause;
    cause.time = ended_at_;
    siginfo_t info{};
    int outcome = 0;
    const MutexLock paused(ReapingMutex());
    do {
      outcome = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
    } while (outcome != 0 && errno == EINTR);
    if (outcome == 0 && info.si_pid == 0) {
      if (SteadyClock::SteadyNow() - ended_at_ < kTracedLimit) return std::nullopt;
      LeaveToReaping(pid_);
      cause.kind = ExitKind::kSignal;
      cause.signal = SIGKILL;
      cause.ordered = sent_.contains(SIGKILL);
      cause.text = "ended, and is held by the process that traces it (a debugger?): how it ended is not known";
      return cause;
    }
    LeaveToReaping(pid_);
    bool core_dumped = false;
    if (outcome == 0 && info.si_code == CLD_EXITED) {
      cause.kind = ExitKind::kExitCode;
      cause.code = info.si_status;
    } else if (outcome == 0) {
      cause.kind = ExitKind::kSignal;
      cause.signal = info.si_status;
      cause.ordered = sent_.contains(cause.signal);
      core_dumped = info.si_code == CLD_DUMPED;
      const bool kernels = cause.signal == SIGKILL && !cause.ordered && helpers_.oom_monitor != nullptr &&
                           helpers_.oom_monitor->Claim(pid_);
      if (kernels) cause.kind = ExitKind::kOutOfMemory;
    }
    cause.text = DescribeExit(cause, core_dumped);
    return cause;
  }

  void OnExit() {
    const std::shared_ptr<Impl> self = shared_from_this();  // a callback may destroy the owner
    if (ended_at_ == TimePoint()) ended_at_ = SteadyClock::SteadyNow();
    EndGroup();
    std::optional<ExitCause> reaped = TryReap();
    if (!reaped) {
      reap_timer_.expires_after(kReapEvery);
      return reap_timer_.async_wait([self](const boost::system::error_code& error) {
        if (!error && !self->abandoned_) self->OnExit();
      });
    }
    ExitCause cause = *std::move(reaped);
    running_ = false;
    boost::system::error_code ignored;
    pidfd_.close(ignored);

    holding_lines_ = true;
    stderr_->ReadPending(kPendingBytes);
    cause.last_stderr_lines = tail_.lines();
    cause.silent_for = cause.time - newest_line_;
    exit_told_ = true;
    if (callbacks_.on_exit) callbacks_.on_exit(cause);

    if (!abandoned_) ReadTheRest();
  }

  void ReadTheRest() {
    holding_lines_ = false;
    for (const std::string& line : std::exchange(held_lines_, {})) Deliver(OutputStream::kStderr, line);
    if (abandoned_) return;
    stdout_->LimitRest(kRestBytes);
    stderr_->LimitRest(kRestBytes);
    rest_timer_.expires_after(kRestTime);
    rest_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->abandoned_) return;
      self->stdout_->Finish();
      if (!self->abandoned_) self->stderr_->Finish();
    });
    TellOutputEnd();  // both may have ended before the process did
  }

  void OnLine(OutputStream stream, std::string_view line) {
    if (stream == OutputStream::kStderr) {
      tail_.Add(line);
      newest_line_ = SteadyClock::SteadyNow();
    }
    if (holding_lines_) {
      held_lines_.emplace_back(line);
    } else {
      Deliver(stream, line);
    }
  }

  void Deliver(OutputStream stream, std::string_view line) {
    if (!abandoned_ && callbacks_.on_line) callbacks_.on_line(stream, line);
  }

  void OnPumpEnd() {
    ++pumps_ended_;
    TellOutputEnd();
  }

  void TellOutputEnd() {
    if (pumps_ended_ < 2 || !exit_told_ || abandoned_ || std::exchange(output_end_told_, true)) return;
    rest_timer_.cancel();
    if (callbacks_.on_output_end) callbacks_.on_output_end();
  }

  const pid_t pid_;
  const bool own_group_;
  const Callbacks callbacks_;
  const ProcessHelpers helpers_;
  boost::asio::posix::stream_descriptor pidfd_;
  boost::asio::steady_timer reap_timer_;
  boost::asio::steady_timer rest_timer_;
  std::shared_ptr<OutputPump> stdout_;
  std::shared_ptr<OutputPump> stderr_;
  LineTail tail_;
  TimePoint newest_line_ = SteadyClock::SteadyNow();
  std::set<int> sent_;
  std::optional<TimePoint> killed_at_;   // by us
  TimePoint ended_at_;                   // as the kernel said; none yet
  std::vector<std::string> held_lines_;  // of the error output, read at the exit and delivered after on_exit
  bool holding_lines_ = false;
  bool running_ = true;
  bool exit_told_ = false;
  bool output_end_told_ = false;
  bool abandoned_ = false;
  int pumps_ended_ = 0;
};

ChildProcess::ChildProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ChildProcess::~ChildProcess() { impl_->Abandon(); }

pid_t ChildProcess::pid() const { return impl_->pid(); }
bool ChildProcess::running() const { return impl_->running(); }
Status ChildProcess::Kill(int signal) { return impl_->Kill(signal); }
Status ChildProcess::KillGroup(int signal) { return impl_->KillGroup(signal); }

Result<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(boost::asio::io_context& io, const ProcessSpec& spec,
                                                          Callbacks callbacks, ProcessHelpers helpers) {
  const auto watch = [&spec, &helpers](pid_t pid) {
    return spec.own_process_group && helpers.guardian != nullptr ? helpers.guardian->Watch(pid) : Status::Ok();
  };
  // A thread that reaps orphans is not to take it for one, however soon it ends.
  MutexLock paused(ReapingMutex());
  KINTSUGI_ASSIGN_OR_RETURN(SpawnedProcess process,
                            helpers.fork_server ? helpers.fork_server->Fork(spec, watch) : ForkExec(spec, watch));
  const pid_t pid = process.pid;
  KeepFromReaping(pid);
  paused.Unlock();
  try {
    auto impl = std::make_shared<Impl>(io, process, spec.own_process_group, std::move(callbacks), helpers);
    impl->Start(io, std::move(process));
    return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(impl)));
  } catch (const std::exception& error) {  // Asio's edge: a descriptor that cannot be watched
    Leave(pid);
    (void)KillAndReap(pid, -1);
    if (helpers.guardian != nullptr) helpers.guardian->Release(pid);
    return Status(StatusCode::kResourceExhausted,
                  "cannot watch process " + std::to_string(pid) + " of \"" + spec.program + "\": " + error.what());
  }
}

}  // namespace kintsugi
