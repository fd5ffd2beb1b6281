#include "callbacks/state/key.h"

#include <algorithm>
#include <cstdint>

namespace kintsugi {
namespace {

// Length of the UTF-8 sequence at `i`, or 0 when there is none (overlong forms, surrogates and values beyond Unicode
// included: RFC 3629).
size_t SequenceLength(const std::string& text, size_t i) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<uint8_t>(text[at]) : 0u; };
  const auto follows = [&](size_t at) { return (byte(at) & 0xC0) == 0x80; };
  const uint32_t lead = byte(i);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(i + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!follows(i + 1) || !follows(i + 2)) return 0;
    const uint32_t value = (lead & 0xF) << 12 | (byte(i + 1) & 0x3F) << 6 | (byte(i + 2) & 0x3F);
    return value >= 0x800 && !(value >= 0xD800 && value <= 0xDFFF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!follows(i + 1) || !follows(i + 2) || !follows(i + 3)) return 0;
    const uint32_t value =
        (lead & 0x7) << 18 | (byte(i + 1) & 0x3F) << 12 | (byte(i + 2) & 0x3F) << 6 | (byte(i + 3) & 0x3F);
    return value >= 0x10000 && value <= 0x10FFFF ? 4 : 0;
  }
  return 0;
}

bool IsControl(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

}  // namespace

std::string PrintableKey(const std::string& key) {
  constexpr size_t kShown = 128;
  std::string text;
  for (size_t i = 0; i < key.size() && i < kShown;) {
    const size_t length = SequenceLength(key, i);
    if (length > 0 && !IsControl(key[i])) {
      text.append(key, i, length);
      i += length;
      continue;
    }
    constexpr char kHex[] = "0123456789abcdef";
    text += {'\\', 'x', kHex[static_cast<uint8_t>(key[i]) >> 4], kHex[static_cast<uint8_t>(key[i]) & 15]};
    ++i;
  }
  if (key.size() > kShown) text += "... (" + std::to_string(key.size()) + " bytes)";
  return text;
}

Status ValidateKey(const std::string& key) {
  if (key.empty()) return {StatusCode::kInvalidArgument, "a key is empty: everything registered needs a name"};
  if (key.size() > kKeyBytesMax)
    return {StatusCode::kInvalidArgument, "key '" + PrintableKey(key) + "' has " + std::to_string(key.size()) +
                                              " bytes; the limit is " + std::to_string(kKeyBytesMax)};
  for (size_t i = 0; i < key.size();) {
    const size_t length = SequenceLength(key, i);
    if (length == 0 || IsControl(key[i]))
      return {StatusCode::kInvalidArgument, "key '" + PrintableKey(key) +
                                                "' has a control character or a byte that is " +
                                                "no UTF-8 at position " + std::to_string(i) + ": use a printable name"};
    i += length;
  }
  return Status::Ok();
}

std::string_view GridName(std::string_view key) {
  constexpr std::string_view kMarker = "/shard_";
  const size_t at = key.rfind(kMarker);
  if (at == std::string_view::npos) return {};
  const std::string_view cell = key.substr(at + kMarker.size());
  const size_t between = cell.find('_');
  const auto axes = [](std::string_view numbers) -> int64_t {  // 0: no numbers with dots between
    const bool plain = numbers.find_first_not_of("0123456789.") == std::string_view::npos;
    if (!plain || numbers.empty() || numbers.front() == '.' || numbers.back() == '.') return 0;
    return numbers.find("..") == std::string_view::npos ? 1 + std::count(numbers.begin(), numbers.end(), '.') : 0;
  };
  if (between == std::string_view::npos) return {};
  const int64_t place = axes(cell.substr(0, between));
  return place > 0 && place == axes(cell.substr(between + 1)) ? key.substr(0, at) : std::string_view();
}

}  // namespace kintsugi
