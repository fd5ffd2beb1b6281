#include "runtime/base/utf8.h"

#include "runtime/base/check.h"

namespace kintsugi {

Utf8Character DecodeUtf8(std::string_view text) {
  KINTSUGI_CHECK(!text.empty(), "there is a byte to decode");
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  char32_t code = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {code, length, true};
}

std::string ToUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Character character = DecodeUtf8(bytes);
    out += character.is_valid ? bytes.substr(0, character.length) : kUtf8Replacement;
    bytes.remove_prefix(character.length);
  }
  return out;
}

}  // namespace kintsugi
