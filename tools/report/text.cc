#include "tools/report/text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace kintsugi {
namespace {

constexpr std::string_view kEllipsis = "\xE2\x80\xA6";
constexpr std::string_view kNarrowSpace = "\xE2\x80\xAF";
constexpr const char* kHardSpace = "\xC2\xA0";

bool MustNotShow(char32_t code) {
  const bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
  const bool turns_direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return control || turns_direction;
}

void AppendEscaped(std::string& out, std::string_view character) {
  switch (character[0]) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      out += character;
  }
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const Utf8Character character = DecodeUtf8(text);
    if (!character.is_valid || MustNotShow(character.code)) {
      out += kUtf8Replacement;
    } else {
      AppendEscaped(out, text.substr(0, character.length));
    }
    text.remove_prefix(character.length);
  }
  return out;
}

std::string Elide(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + std::string(kEllipsis);
}

std::string Fixed(double value, int decimals) {
  if (!std::isfinite(value)) return "n/a";
  std::array<char, 400> buffer;  // the longest finite double has 309 digits before the point
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals);
  return end.ec == std::errc() ? std::string(buffer.data(), end.ptr) : "n/a";
}

std::string FormatMs(std::optional<double> milliseconds) {
  if (!milliseconds) return "not reached";
  const double ms = *milliseconds;
  if (!std::isfinite(ms)) return "n/a";
  if (ms >= 10000) return Fixed(ms / 1000, 1) + kHardSpace + "s";
  return Fixed(ms, std::abs(ms) < 100 ? 1 : 0) + kHardSpace + "ms";
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + kHardSpace + "B";
  static constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return Fixed(value, value < 100 ? 1 : 0) + kHardSpace + std::string(kUnits[unit]);
}

std::string FormatCount(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += kNarrowSpace;
    out += digits[i];
  }
  return out;
}

std::string FormatLoss(std::optional<double> loss) {
  if (!loss) return "none";
  return Fixed(*loss, *loss != 0 && std::abs(*loss) < 0.01 ? 8 : 4);
}

std::string Counted(uint64_t count, std::string_view one, std::string_view many) {
  return FormatCount(count) + " " + std::string(count == 1 ? one : many);
}

}  // namespace kintsugi
