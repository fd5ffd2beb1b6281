#include "runtime/base/port_range.h"

#include <charconv>

namespace kintsugi {
namespace {

constexpr int kUnprivileged = 1024;

// 0: it is no port that anybody may listen on.
int PortOf(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= kUnprivileged && port <= 65535 ? port : 0;
}

}  // namespace

Result<PortRange> PortRange::Parse(const std::string& text) {
  if (text.empty()) return PortRange();
  const size_t dash = text.find('-');
  const int first = PortOf(std::string_view(text).substr(0, dash));
  const int last = dash == std::string::npos ? 0 : PortOf(std::string_view(text).substr(dash + 1));
  if (first == 0 || last < first)
    return Status(StatusCode::kInvalidArgument,
                  "'" + text + "' is no range of ports: A-B with both from 1024 to 65535, as in 29500-29999");
  return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

}  // namespace kintsugi
