// Joining and leaving, and what is known of this rank.
#include "integrations/c/handle.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "integrations/c/macros.h"
#include "integrations/cpp/kintsugi.h"
#include "runtime/base/host_port.h"
#include "runtime/base/write_all.h"

namespace kintsugi::c {
namespace {

std::atomic<uint32_t> forks{0};
std::atomic<bool> joined{false};  // an agent lives in this process

// Hands lines to a function of the caller's.
class FunctionSink final : public LogSink {
 public:
  FunctionSink(void (*function)(void*, kintsugi_log_level, const char*), void* context)
      : function_(function), context_(context) {}
  void Write(LogLevel level, std::string_view line) override {
    function_(context_, static_cast<kintsugi_log_level>(level), std::string(line).c_str());
  }

 private:
  void (*const function_)(void*, kintsugi_log_level, const char*);
  void* const context_;
};

Status FillFromMemory(const kintsugi_options& given, AgentOptions* options, UniqueFd* secret) {
  if (!given.job || !given.secret || given.secret_size == 0)
    return {StatusCode::kInvalidArgument, "kintsugi_options: with a controller, job and secret are needed too"};
  const std::optional<HostPort> place = HostPort::Parse(given.controller);
  if (!place)
    return {StatusCode::kInvalidArgument,
            "kintsugi_options.controller='" + std::string(given.controller) + "' is not HOST:PORT"};
  options->controller_host = place->host;
  options->controller_port = place->port;
  options->job = given.job;
  options->rank = Rank(given.rank);
  options->world_size = given.world_size;
  if (given.tls_certificate) options->tls_certificate = given.tls_certificate;
  if (given.tls_key) options->tls_key = given.tls_key;
  if (given.tls_ca) options->tls_ca = given.tls_ca;
  KINTSUGI_ASSIGN_OR_RETURN(*secret, SecretFile(given.secret, given.secret_size));
  options->secret_fd = secret->get();
  return options->Validate();
}

Status JoinWith(const kintsugi_options& given, kintsugi_agent* handle) {
  AgentOptions options;
  UniqueFd secret;
  if (given.controller) {
    KINTSUGI_RETURN_IF_ERROR(FillFromMemory(given, &options, &secret));
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(options, AgentOptions::FromEnvironment());
  }
  if (given.join_timeout_ms > 0) options.join_timeout = std::chrono::milliseconds(given.join_timeout_ms);
  std::shared_ptr<LogSink> log = NullLogSink();
  if (given.log) log = FunctionLog(given.log, given.log_context);
  KINTSUGI_ASSIGN_OR_RETURN(aoa::UserMacros macros, MacrosFrom(given.macros, given.macro_count));
  KINTSUGI_ASSIGN_OR_RETURN(handle->agent, Join(options, std::move(log), {}, macros));
  return Status::Ok();
}

Status MakeAgent(const kintsugi_options* given, kintsugi_agent** agent) {
  if (!agent) return {StatusCode::kInvalidArgument, "there is no place for the agent"};
  *agent = nullptr;
  if (joined.exchange(true))
    return {StatusCode::kFailedPrecondition, "this process has joined already: one process is one rank"};
  auto handle = std::make_unique<kintsugi_agent>();
  handle->forks = Forks();
  kintsugi_options options{};
  options.size = sizeof options;
  Status made = given ? TakeStruct(given, "kintsugi_options", &options) : Status::Ok();
  if (made.ok()) made = JoinWith(options, handle.get());
  if (!made.ok()) {
    joined = false;
    return made;
  }
  *agent = handle.release();
  return Status::Ok();
}

}  // namespace

uint32_t Forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); }); });
  return forks.load(std::memory_order_relaxed);
}

Result<UniqueFd> SecretFile(const void* bytes, size_t size) {
  UniqueFd file(memfd_create("kintsugi-secret", MFD_CLOEXEC));
  if (file.get() < 0 || WriteAll(file.get(), {static_cast<const char*>(bytes), size}) != 0 ||
      lseek(file.get(), 0, SEEK_SET) != 0)
    return Status(StatusCode::kResourceExhausted, "no memory file for the secret could be made");
  return file;
}

std::shared_ptr<LogSink> FunctionLog(void (*function)(void*, kintsugi_log_level, const char*), void* context) {
  return std::make_shared<FunctionSink>(function, context);
}

}  // namespace kintsugi::c

using namespace kintsugi;

kintsugi_code kintsugi_join(const kintsugi_options* options, kintsugi_agent** agent, kintsugi_error** error) try {
  return c::Answer(c::MakeAgent(options, agent), error);
} catch (const std::exception& e) {
  return c::Answer({StatusCode::kInternal, e.what()}, error);
}

void kintsugi_leave(kintsugi_agent* agent) {
  // In a forked child the agent's threads do not exist: what they held is left as it is.
  if (!agent || c::IsForked(agent)) return;
  delete agent;
  c::joined = false;
}

int32_t kintsugi_rank_of(const kintsugi_agent* agent) { return agent ? agent->agent->rank().value() : -1; }
int32_t kintsugi_world_size(const kintsugi_agent* agent) { return agent ? agent->agent->world_size() : 0; }
kintsugi_join_kind kintsugi_joined_as(const kintsugi_agent* agent) {
  return agent ? static_cast<kintsugi_join_kind>(agent->agent->join_kind()) : KINTSUGI_FRESH;
}
uint64_t kintsugi_incarnation(const kintsugi_agent* agent) { return agent ? agent->agent->incarnation().value() : 0; }
int32_t kintsugi_device(const kintsugi_agent* agent) { return agent ? agent->agent->device() : -1; }
size_t kintsugi_crew(const kintsugi_agent* agent, int32_t* ranks, size_t capacity) {
  if (!agent) return 0;
  const std::vector<Rank> crew = agent->agent->crew();
  for (size_t i = 0; ranks && i < std::min(crew.size(), capacity); ++i) ranks[i] = crew[i].value();
  return crew.size();
}
int32_t kintsugi_exit_code(const kintsugi_agent* agent) { return agent ? agent->agent->exit_code() : 1; }
