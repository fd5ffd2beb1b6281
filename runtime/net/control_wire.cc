#include "runtime/net/control_wire.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/json.h"

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
  const auto document = JsonDocument::Parse(line);
  if (!document.ok()) return Status::Ok();
  const auto error = document->Root().Find("transport_error");
  std::string_view name;
  std::string message;
  if (!error || !error->Read("code", &name, "message", &message).ok()) return Status::Ok();
  const auto code = std::find_if(std::begin(kCodes), std::end(kCodes),
                                 [&](StatusCode one) { return StatusCodeName(one) == name; });
  return {code == std::end(kCodes) ? StatusCode::kInternal : *code, std::move(message)};
}

}  // namespace kintsugi::net
