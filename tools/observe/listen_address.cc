#include "tools/observe/listen_address.h"

#include <charconv>

namespace kintsugi::observe {

Result<ListenAddress> ParseListenAddress(const std::string& option, const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string address = colon == std::string::npos ? "" : text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  const std::string digits = colon == std::string::npos ? text : text.substr(colon + 1);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port > 65535)
    return Status(StatusCode::kInvalidArgument,
                  option + " '" + text + "' is not [ADDR:]PORT, as in 9400, 0.0.0.0:9400 or [::1]:9400");
  ListenAddress place;
  if (!address.empty()) place.address = address;
  place.port = static_cast<uint16_t>(port);
  return place;
}

}  // namespace kintsugi::observe
