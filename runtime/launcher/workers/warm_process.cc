#include "runtime/launcher/workers/warm_process.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

// How a refusal begins that names a module of --preload.
constexpr std::string_view kLacks = "--preload ";

}  // namespace

Result<std::unique_ptr<WarmProcess>> WarmProcess::Create(bool first, Launch launch, std::shared_ptr<LogSink> log) {
  UniqueFd list(::memfd_create("kintsugi-warm", MFD_CLOEXEC));
  if (!list.valid())
    return Status(StatusCode::kResourceExhausted, std::string("no memory file for --warm: ") + std::strerror(errno));
  return std::unique_ptr<WarmProcess>(new WarmProcess(std::move(list), first, std::move(launch), std::move(log)));
}

void WarmProcess::Say(LogLevel level, const std::string& event, const std::string& why) {
  log_->Write(level, why.empty() ? LogLine(event, {}) : LogLine(event, {{"why", why}}));
}

void WarmProcess::Poll(bool computing, TimePoint now) {
  if (ended_ || refused_) return;
  if (!child_ && MayStart(computing, now)) Start(now);
  if (child_ && !told_) Listen();
}

bool WarmProcess::MayStart(bool computing, TimePoint now) const {
  if (awaited_) return true;
  struct stat list {};
  return ::fstat(list_.get(), &list) == 0 && list.st_size > 0 && start_policy_.MayStart(0, computing, now);
}

void WarmProcess::Listen() {
  if (server_->ready()) {
    told_ = true;
    awaited_ = false;
    Say(LogLevel::kInfo, "warm_ready", "");
  } else if (!server_->refusal().empty()) {
    told_ = refused_ = true;
    awaited_ = false;
    if (server_->refusal().starts_with(kLacks)) lacks_ = server_->refusal();
    Say(LogLevel::kWarning, "warm_refused", server_->refusal() + "; ranks start by themselves");
  }
}

void WarmProcess::Start(TimePoint now) {
  KINTSUGI_CHECK(!child_ && !refused_, "a warm process is started twice, or for a program that refused");
  started_ = now;
  told_ = false;
  Result<ForkServer> server = ForkServer::Create();
  Result<std::unique_ptr<ChildProcess>> child =
      server.ok() ? launch_(server->server_end(), list_.get()) : Result<std::unique_ptr<ChildProcess>>(server.status());
  if (!child.ok()) {
    awaited_ = false;
    start_policy_.OnDeath(Duration());
    return Say(LogLevel::kWarning, "warm_died", child.status().message());
  }
  server->CloseServerEnd();
  server_.emplace(std::move(*server));
  child_ = std::move(*child);
  log_->Write(LogLevel::kInfo, LogLine("warm_started", {{"pid", std::to_string(child_->pid())}}));
}

ForkServer* WarmProcess::server() {
  return !ended_ && child_ && child_->running() && server_->ready() ? &*server_ : nullptr;
}

void WarmProcess::OnExit(const ExitCause& cause) {
  if (ended_) return;
  if (child_ && !told_) Listen();  // what it said before it ended
  awaited_ = false;
  start_policy_.OnDeath(cause.time - started_);
  const std::string why = cause.text + LastWords(cause);
  if (!refused_) Say(LogLevel::kWarning, "warm_died", why);
  server_.reset();
  child_.reset();
}

void WarmProcess::End() {
  ended_ = true;
  child_.reset();
}

}  // namespace kintsugi
