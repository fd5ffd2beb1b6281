// Bytes that a test keeps as text.
#pragma once

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kintsugi {

// Two hex digits per byte; std::invalid_argument for anything else.
inline std::string FromHex(std::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint8_t byte = 0;
    const char* begin = hex.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) throw std::invalid_argument("no hex digits");
    bytes[i] = static_cast<char>(byte);
  }
  if (hex.size() % 2 != 0) throw std::invalid_argument("half a byte");
  return bytes;
}

}  // namespace kintsugi
