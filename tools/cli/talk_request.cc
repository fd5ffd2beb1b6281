#include "tools/cli/talk_request.h"

#include "runtime/net/control_socket.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {

using nlohmann::json;

std::optional<json> AskRun(const std::string& run_directory, const json& request, int& exit_code, Duration limit) {
  Result<std::string> answer = net::ControlRequest(run_directory + "/control.sock",
                                                   request.dump(-1, ' ', false, json::error_handler_t::replace), limit);
  if (!answer.ok()) {
    Complain(answer.status().message());
    exit_code = 1;
    return std::nullopt;
  }
  json parsed = json::parse(*answer, nullptr, false);
  if (!parsed.is_object() || !parsed.value("ok", false)) {
    Complain(parsed.is_object() ? parsed.value("error", "the run refused") : "the run's answer is not JSON");
    exit_code = parsed.is_object() ? parsed.value("exit", core::kExitUsage) : core::kExitFailed;
    return std::nullopt;
  }
  return parsed;
}

}  // namespace kintsugi::cli
