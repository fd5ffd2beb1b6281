#include "callbacks/state/key.h"

#include <charconv>
#include <cstdint>
#include <optional>

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

namespace {

// Of its first `shown` bytes.
std::string Escaped(const std::string& key, size_t shown) {
  std::string text;
  for (size_t i = 0; i < key.size() && i < shown;) {
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
  return text;
}

}  // namespace

std::string EscapedKey(const std::string& key) { return Escaped(key, key.size()); }

std::string PrintableKey(const std::string& key) {
  constexpr size_t kShown = 128;
  std::string text = Escaped(key, kShown);
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

namespace {

// The digits at its front, which it loses.
std::optional<uint64_t> TakeNumber(std::string_view* text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

}  // namespace

std::string_view GridName(std::string_view key) {
  constexpr std::string_view kMarker = "/shard_";
  const size_t at = key.rfind(kMarker);
  if (at == std::string_view::npos) return {};
  const std::string_view cell = key.substr(at + kMarker.size());
  const size_t between = cell.find('_');
  if (between == std::string_view::npos) return {};
  std::string_view place = cell.substr(0, between), shape = cell.substr(between + 1);
  for (;;) {  // axis by axis: a number, and a greater one
    const auto at_axis = TakeNumber(&place), of_axis = TakeNumber(&shape);
    if (!at_axis || !of_axis || *at_axis >= *of_axis) return {};
    if (place.empty() && shape.empty()) return key.substr(0, at);
    if (!place.starts_with('.') || !shape.starts_with('.')) return {};
    place.remove_prefix(1);
    shape.remove_prefix(1);
  }
}

}  // namespace kintsugi
