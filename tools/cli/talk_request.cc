#include "tools/cli/talk_request.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/net/control_socket.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {

using nlohmann::json;

namespace {

constexpr auto kAgainAfter = std::chrono::milliseconds(50);

// The door holds so many callers; another is turned away at once, before the run has heard of it.
Result<std::string> AskWhenFree(const std::string& path, const std::string& request, Duration limit,
                                const std::function<void(const std::string&)>& tell) {
  const TimePoint begun = SteadyClock::SteadyNow();
  const std::string seconds = std::to_string(limit / std::chrono::seconds(1)) + " s";
  for (bool told = false;;) {
    const Duration left = limit - (SteadyClock::SteadyNow() - begun);
    Result<std::string> answer = net::ControlRequest(path, request, std::max(left, Duration(kAgainAfter)));
    if (answer.ok() || answer.status().code() != StatusCode::kUnavailable) return answer;
    if (left <= kAgainAfter) return Status(StatusCode::kUnavailable, answer.status().message() + ", for " + seconds);
    if (!std::exchange(told, true) && tell) tell(answer.status().message() + "; trying again, " + seconds + " at most");
    std::this_thread::sleep_for(kAgainAfter);
  }
}

}  // namespace

RunAnswer Ask(const std::string& run_directory, const json& request, Duration limit,
              const std::function<void(const std::string&)>& tell) {
  const auto vain = [](Status trouble, int exit_code) {
    return RunAnswer{std::nullopt, std::move(trouble), exit_code};
  };
  // Another text in the place of what was typed would be another order.
  for (const auto& [name, value] : request.items())
    if (value.is_string() && ToUtf8(value.get_ref<const std::string&>()) != value.get_ref<const std::string&>())
      return vain({StatusCode::kInvalidArgument,
                   "'" + ToUtf8(value.get_ref<const std::string&>()) + "' (" + name + ") is no UTF-8"},
                  core::kExitUsage);
  const Result<std::string> answer = AskWhenFree(run_directory + "/control.sock", request.dump(), limit, tell);
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
  RunAnswer answer = Ask(run_directory, request, limit, Complain);
  if (answer.said) return std::move(answer.said);
  Complain(answer.trouble.message());
  exit_code = answer.exit_code;
  return std::nullopt;
}

}  // namespace kintsugi::cli
