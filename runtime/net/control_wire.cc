#include "runtime/net/control_wire.h"

#include <nlohmann/json.hpp>

namespace kintsugi::net {
namespace {

constexpr StatusCode kCodes[] = {StatusCode::kPermissionDenied, StatusCode::kInvalidArgument,
                                 StatusCode::kDeadlineExceeded, StatusCode::kInternal};

}  // namespace

std::string TransportError(const Status& status) {
  const nlohmann::json line = {
      {"transport_error", {{"code", StatusCodeName(status.code())}, {"message", status.message()}}}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status ParseTransportError(const std::string& line) {
  if (line.rfind("{\"transport_error\":", 0) != 0) return Status::Ok();
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object()) return Status::Ok();
  const nlohmann::json& error = parsed["transport_error"];
  if (!error.is_object() || !error.contains("code") || !error.contains("message") || !error["message"].is_string()) {
    return Status::Ok();
  }
  for (StatusCode code : kCodes) {
    if (error["code"] == StatusCodeName(code)) return {code, error["message"].get<std::string>()};
  }
  return {StatusCode::kInternal, error["message"].get<std::string>()};
}

}  // namespace kintsugi::net
