// PortRange: the TCP ports that a process may listen on where it does not matter which, for hosts behind a firewall.
//
// Threads: a plain value.
// Errors: Parse: kInvalidArgument that says what was expected.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace kintsugi {

struct PortRange {
  uint16_t first = 0;  // 0: any port
  uint16_t last = 0;

  // "A-B", both included; "" is any.
  static Result<PortRange> Parse(const std::string& text);

  bool any() const { return first == 0; }
  int size() const { return any() ? 0 : last - first + 1; }
  std::string ToString() const { return any() ? "" : std::to_string(first) + "-" + std::to_string(last); }
  bool operator==(const PortRange&) const = default;
};

}  // namespace kintsugi
