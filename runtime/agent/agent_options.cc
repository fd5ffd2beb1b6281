#include "runtime/agent/agent_options.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "runtime/base/host_port.h"
#include "runtime/base/warning_signals.h"
#include "runtime/core/step_rules.h"

namespace kintsugi {
namespace {

Result<int64_t> Number(const char* name, int64_t low, int64_t high) {
  const char* text = std::getenv(name);
  const std::string range = std::to_string(low) + " to " + std::to_string(high);
  if (!text)
    return Status(StatusCode::kInvalidArgument, std::string("environment variable ") + name + " (" + range +
                                                    ") is not set: start the program with `kintsugi run`");
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < low || value > high)
    return Status(StatusCode::kInvalidArgument,
                  std::string("environment variable ") + name + "='" + text + "' is not a number from " + range);
  return value;
}

}  // namespace

Result<AgentOptions> AgentOptions::FromEnvironment() {
  AgentOptions options;
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t world, Number("WORLD_SIZE", 1, 1'000'000));
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t secret_fd, Number("KINTSUGI_SECRET_FD", 0, 1 << 20));
  options.world_size = static_cast<int>(world);
  if (std::getenv("KINTSUGI_SPARE_FD")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t spare_fd, Number("KINTSUGI_SPARE_FD", 0, 1 << 20));
    options.spare_fd = static_cast<int>(spare_fd);
  } else {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t rank, Number("RANK", 0, world - 1));
    options.rank = Rank(static_cast<int32_t>(rank));
  }
  options.secret_fd = static_cast<int>(secret_fd);
  if (std::getenv("KINTSUGI_PAGE_FD")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t page_fd, Number("KINTSUGI_PAGE_FD", 0, 1 << 20));
    options.page_fd = static_cast<int>(page_fd);
  }
  for (const auto& [name, number] :
       {std::pair{"KINTSUGI_DEVICE", &options.device}, {"KINTSUGI_DEVICE_FD", &options.device_fd}})
    if (std::getenv(name)) {
      KINTSUGI_ASSIGN_OR_RETURN(const int64_t value, Number(name, 0, 1 << 20));
      *number = static_cast<int>(value);
    }
  if (std::getenv("KINTSUGI_STATE_FD")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t state_fd, Number("KINTSUGI_STATE_FD", 0, 1 << 20));
    options.state_fd = static_cast<int>(state_fd);
  }
  if (std::getenv("KINTSUGI_SILENCE")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t silence, Number("KINTSUGI_SILENCE", 1, 1'000'000'000));
    options.silence = std::chrono::milliseconds(silence);
  }
  if (std::getenv("KINTSUGI_INCARNATION")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t life,
                              Number("KINTSUGI_INCARNATION", 0, std::numeric_limits<int64_t>::max()));
    options.incarnation = Incarnation(static_cast<uint64_t>(life));
  }
  for (const auto& [name, file] :
       {std::pair{"KINTSUGI_TLS_CERT", &options.tls_certificate}, std::pair{"KINTSUGI_TLS_KEY", &options.tls_key},
        std::pair{"KINTSUGI_TLS_CA", &options.tls_ca}, std::pair{"KINTSUGI_RESUME_AOA", &options.resume_aoa},
        std::pair{"KINTSUGI_RESUME_STRICT", &options.resume_strict},
        std::pair{"KINTSUGI_RESUME_SHAPES", &options.resume_shapes},
        std::pair{"KINTSUGI_RESUME_READ", &options.resume_read},
        std::pair{"KINTSUGI_SAVE_FORMAT", &options.save_format}, std::pair{"KINTSUGI_SAVE_AOA", &options.save_aoa},
        std::pair{"KINTSUGI_SAVE_ONLY", &options.save_only}})
    if (const char* value = std::getenv(name)) *file = value;
  if (std::getenv("KINTSUGI_SAVE_FILE_BYTES")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t bytes,
                              Number("KINTSUGI_SAVE_FILE_BYTES", 1, std::numeric_limits<int64_t>::max()));
    options.save_file_bytes = static_cast<uint64_t>(bytes);
  }
  if (std::getenv("KINTSUGI_SAVE_KEEP")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t newest, Number("KINTSUGI_SAVE_KEEP", 1, std::numeric_limits<int>::max()));
    options.save_keep = static_cast<int>(newest);
  }
  if (std::getenv("KINTSUGI_SAVE_KEEP_EVERY")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t every,
                              Number("KINTSUGI_SAVE_KEEP_EVERY", 1, std::numeric_limits<int64_t>::max()));
    options.save_keep_every = static_cast<uint64_t>(every);
  }
  if (const char* value = std::getenv("KINTSUGI_SAVE_WITH")) {
    std::istringstream lines(value);
    for (std::string path; std::getline(lines, path);)
      if (!path.empty()) options.save_with.push_back(path);
  }
  if (const char* value = std::getenv("KINTSUGI_SIGNALS")) {
    Result<std::vector<int>> signals = ParseSignals(value);
    if (!signals.ok()) return signals.status().Annotate("environment variable KINTSUGI_SIGNALS");
    options.warning_signals = *std::move(signals);
  }
  if (std::getenv("KINTSUGI_MAX_RESPAWNS")) {
    KINTSUGI_ASSIGN_OR_RETURN(const int64_t places,
                              Number("KINTSUGI_MAX_RESPAWNS", 0, std::numeric_limits<int>::max()));
    options.max_respawns = static_cast<int>(places);
  }
  // The Python package takes it out before it comes here, and goes by it itself.
  if (const char* value = std::getenv("KINTSUGI_VETO")) options.veto = value;
  const char* job = std::getenv("KINTSUGI_JOB");
  options.job = job ? job : "";
  const char* controller = std::getenv("KINTSUGI_CONTROLLER");
  const std::string address = controller ? controller : "";
  const std::optional<HostPort> place = HostPort::Parse(address);
  if (!place)
    return Status(StatusCode::kInvalidArgument, "environment variable KINTSUGI_CONTROLLER='" + address +
                                                    "' is not HOST:PORT: start the program with `kintsugi run`");
  options.controller_host = place->host;
  options.controller_port = place->port;
  KINTSUGI_RETURN_IF_ERROR(options.Validate());
  return options;
}

Status AgentOptions::Validate() const {
  if (world_size < 1 || rank.value() < 0 || rank.value() >= world_size)
    return {StatusCode::kInvalidArgument,
            "rank " + rank.ToString() + " is outside the world of " + std::to_string(world_size)};
  KINTSUGI_RETURN_IF_ERROR(core::Veto::Parse(veto).status());
  if (controller_port == 0) return {StatusCode::kInvalidArgument, "the controller's port is 0"};
  if (job.empty()) return {StatusCode::kInvalidArgument, "the job has no name (KINTSUGI_JOB)"};
  if (secret_fd < 0) return {StatusCode::kInvalidArgument, "no descriptor of the job's secret (KINTSUGI_SECRET_FD)"};
  return Status::Ok();
}

}  // namespace kintsugi
