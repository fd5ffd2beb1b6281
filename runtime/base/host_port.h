// A place that is connected to: "HOST:PORT", and "[::1]:PORT" of an IPv6 address.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kintsugi {

struct HostPort {
  std::string host;  // an IPv6 address without its brackets
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;

  // Nothing where the port is not 1 to 65535, or there is no host.
  static std::optional<HostPort> Parse(std::string_view text);
  // As Parse reads it.
  std::string ToString() const;
};

}  // namespace kintsugi
