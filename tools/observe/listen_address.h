// Where something is to listen: "[ADDR:]PORT", as --metrics and --page take it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace kintsugi::observe {

struct ListenAddress {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: any
  bool operator==(const ListenAddress&) const = default;
};

// Errors: kInvalidArgument, naming `option`.
Result<ListenAddress> ParseListenAddress(const std::string& option, const std::string& text);

}  // namespace kintsugi::observe
