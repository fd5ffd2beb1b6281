// The two kinds of receivers: a command, and a web address.
#include <sys/mman.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <cstring>
#include <utility>

#include "runtime/base/unique_fd.h"
#include "runtime/base/write_all.h"
#include "runtime/process/child_process.h"
#include "tools/observe/notices.h"

namespace kintsugi::observe {
namespace {

constexpr Duration kCommandLimit = std::chrono::seconds(30);
constexpr int kLinesMax = 20;  // of one command, into the log
constexpr Duration kAnswerLimit = std::chrono::seconds(5);
constexpr int kTries = 3;
constexpr Duration kBetweenTries = std::chrono::seconds(1);

// A file that only its descriptors name, read from its beginning.
Result<UniqueFd> FileOf(const std::string& text) {
  UniqueFd file(memfd_create("incident", MFD_CLOEXEC));
  const int error = file.valid() ? WriteAll(file.get(), text) : errno;
  if (error != 0 || lseek(file.get(), 0, SEEK_SET) != 0)
    return Status(StatusCode::kResourceExhausted, std::string("no memory for its input: ") + std::strerror(error));
  return file;
}

class CommandReceiver final : public NoticeReceiver {
 public:
  CommandReceiver(boost::asio::io_context& io, std::string command, std::shared_ptr<LogSink> log)
      : NoticeReceiver(std::move(log)), io_(io), command_(std::move(command)), limit_(io) {}

 private:
  std::string name() const override { return "--on-incident"; }

  void Begin(const std::string& notice) override {
    const Status begun = Start(notice);
    if (!begun.ok()) boost::asio::post(io_, [this, begun] { Done(begun); });
  }
  Status Start(const std::string& notice) {
    KINTSUGI_ASSIGN_OR_RETURN(const UniqueFd input, FileOf(notice + "\n"));
    ProcessSpec spec;
    spec.program = "/bin/sh";
    spec.args = {"-c", "exec <&3 3<&-\n" + command_};
    spec.passed_fds = {{input.get(), ""}};
    how_ = Status::Ok();
    lines_ = 0;
    ChildProcess::Callbacks callbacks;
    callbacks.on_exit = [this](const ExitCause& cause) {
      limit_.cancel();
      const bool well = cause.kind == ExitKind::kUnknown || (cause.kind == ExitKind::kExitCode && cause.code == 0);
      if (how_.ok() && !well) how_ = {StatusCode::kUnavailable, "the command " + cause.text};
    };
    callbacks.on_line = [this](OutputStream, std::string_view line) {
      if (++lines_ > kLinesMax) return;
      log().Write(LogLevel::kInfo, LogLine("on_incident", {{"said", std::string(line)}}));
    };
    callbacks.on_output_end = [this] { boost::asio::post(io_, [this] { Done(how_); }); };
    KINTSUGI_ASSIGN_OR_RETURN(child_, ChildProcess::Spawn(io_, spec, std::move(callbacks)));
    limit_.expires_after(kCommandLimit);
    limit_.async_wait([this](const boost::system::error_code& error) {
      if (error || !child_->running()) return;
      how_ = {StatusCode::kDeadlineExceeded, "the command was killed after 30 s"};
      (void)child_->KillGroup(SIGKILL);
    });
    return Status::Ok();
  }

  boost::asio::io_context& io_;
  const std::string command_;
  boost::asio::steady_timer limit_;
  std::unique_ptr<ChildProcess> child_;
  Status how_;
  int lines_ = 0;
};

class WebhookReceiver final : public NoticeReceiver {
 public:
  WebhookReceiver(boost::asio::io_context& io, Webhook to, std::shared_ptr<LogSink> log)
      : NoticeReceiver(std::move(log)), io_(io), to_(std::move(to)), pause_(io) {}

 private:
  std::string name() const override { return "--webhook"; }

  void Begin(const std::string& notice) override {
    json_ = notice;
    tried_ = 0;
    Try();
  }
  void Try() {
    ++tried_;
    post_ = std::make_unique<net::HttpPost>(io_, to_.endpoint, to_.target, json_, kAnswerLimit,
                                            [this](Result<net::HttpAnswer> answer) { OnAnswer(std::move(answer)); });
  }
  void OnAnswer(Result<net::HttpAnswer> answer) {
    Status how = answer.status();
    if (answer.ok() && answer->status / 100 != 2)
      how = {StatusCode::kUnavailable, to_.endpoint.ToString() + " answered " + std::to_string(answer->status)};
    if (how.ok() || tried_ == kTries) return Done(how);
    pause_.expires_after(tried_ * kBetweenTries);
    pause_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Try();
    });
  }

  boost::asio::io_context& io_;
  const Webhook to_;
  boost::asio::steady_timer pause_;
  std::unique_ptr<net::HttpPost> post_;
  std::string json_;
  int tried_ = 0;
};

}  // namespace

std::unique_ptr<NoticeReceiver> MakeCommandReceiver(boost::asio::io_context& io, std::string command,
                                                    std::shared_ptr<LogSink> log) {
  return std::make_unique<CommandReceiver>(io, std::move(command), std::move(log));
}

std::unique_ptr<NoticeReceiver> MakeWebhookReceiver(boost::asio::io_context& io, Webhook to,
                                                    std::shared_ptr<LogSink> log) {
  return std::make_unique<WebhookReceiver>(io, std::move(to), std::move(log));
}

}  // namespace kintsugi::observe
