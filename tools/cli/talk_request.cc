#include "tools/cli/talk_request.h"

#include "runtime/base/json.h"
#include "runtime/net/control_socket.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {

using nlohmann::json;

RunAnswer Ask(const std::string& run_directory, const json& request, Duration limit) {
  const auto vain = [](Status trouble, int exit_code) {
    return RunAnswer{std::nullopt, std::move(trouble), exit_code};
  };
  const Result<std::string> answer = net::ControlRequest(
      run_directory + "/control.sock", request.dump(-1, ' ', false, json::error_handler_t::replace), limit);
  if (!answer.ok()) return vain(answer.status(), core::kExitFailed);
  Result<json> parsed = ParseJson(*answer, {.code = StatusCode::kInternal});
  if (!parsed.ok() || !parsed->is_object())
    return vain({StatusCode::kInternal, "the run's answer is not JSON"}, core::kExitFailed);
  if (parsed->value("ok", false)) return {std::move(*parsed), Status::Ok(), core::kExitSuccess};
  return vain({StatusCode::kFailedPrecondition, parsed->value("error", "the run refused")},
              parsed->value("exit", core::kExitUsage));
}

std::optional<json> AskRun(const std::string& run_directory, const json& request, int& exit_code, Duration limit) {
  RunAnswer answer = Ask(run_directory, request, limit);
  if (answer.said) return std::move(answer.said);
  Complain(answer.trouble.message());
  exit_code = answer.exit_code;
  return std::nullopt;
}

}  // namespace kintsugi::cli
