#include "tools/cli/talk_request.h"

#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/net/control_socket.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {

using nlohmann::json;

RunAnswer Ask(const std::string& run_directory, const json& request, Duration limit) {
  const auto vain = [](Status trouble, int exit_code) {
    return RunAnswer{std::nullopt, std::move(trouble), exit_code};
  };
  // Another text in the place of what was typed would be another order.
  for (const auto& [name, value] : request.items())
    if (value.is_string() && ToUtf8(value.get_ref<const std::string&>()) != value.get_ref<const std::string&>())
      return vain({StatusCode::kInvalidArgument,
                   "'" + ToUtf8(value.get_ref<const std::string&>()) + "' (" + name + ") is no UTF-8"},
                  core::kExitUsage);
  const Result<std::string> answer = net::ControlRequest(run_directory + "/control.sock", request.dump(), limit);
  if (!answer.ok()) return vain(answer.status(), core::kExitFailed);
  const auto document = JsonDocument::Parse(*answer);
  if (!document.ok() || !document->Root().IsObject())
    return vain({StatusCode::kInternal, "the run's answer is not JSON"}, core::kExitFailed);
  const JsonField said = document->Root();
  bool ok = false;
  std::string error = "the run refused";
  int exit_code = core::kExitUsage;
  (void)said.ReadIfAny("ok", &ok);
  if (ok) return {said.Copy(), Status::Ok(), core::kExitSuccess};
  (void)said.ReadIfAny("error", &error);
  (void)said.ReadIfAny("exit", &exit_code);
  return vain({StatusCode::kFailedPrecondition, std::move(error)}, exit_code);
}

std::optional<json> AskRun(const std::string& run_directory, const json& request, int& exit_code, Duration limit) {
  RunAnswer answer = Ask(run_directory, request, limit);
  if (answer.said) return std::move(answer.said);
  Complain(answer.trouble.message());
  exit_code = answer.exit_code;
  return std::nullopt;
}

}  // namespace kintsugi::cli
