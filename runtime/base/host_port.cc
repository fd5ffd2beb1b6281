#include "runtime/base/host_port.h"

#include <charconv>

namespace kintsugi {

std::optional<HostPort> HostPort::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end || port < 1 || port > 65535 || host.empty() ||
      host.find_first_of("[]") != std::string_view::npos)
    return std::nullopt;
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

std::string HostPort::ToString() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace kintsugi
