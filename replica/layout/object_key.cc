#include "replica/layout/object_key.h"

#include <charconv>

#include "callbacks/state/key.h"

namespace kintsugi::layout {
namespace {

constexpr std::string_view kMarker = "/shard_";

std::string Dotted(const Shape& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? "." : "") + std::to_string(numbers[i]);
  return text;
}

// "3.0.12"; nothing unless every part is a number, not negative, within 63 bits.
std::optional<Shape> ParseDotted(std::string_view text) {
  Shape numbers;
  for (;;) {
    const size_t dot = std::min(text.find('.'), text.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + dot, number);
    if (dot == 0 || error != std::errc() || end != text.data() + dot || number < 0) return std::nullopt;
    numbers.push_back(number);
    if (dot == text.size()) return numbers;
    text.remove_prefix(dot + 1);
  }
}

}  // namespace

std::string StorageKey(const ObjectKey& object) {
  const bool is_alone = object.grid_shape.empty();
  return object.key + std::string(kMarker) + (is_alone ? "0" : Dotted(object.grid_offset)) + "_" +
         (is_alone ? "1" : Dotted(object.grid_shape));
}

Result<ObjectKey, LayoutError> ParseStorageKey(const std::string& text) {
  const auto error = [&](const std::string& what) {
    return LayoutError{
        ErrorCode::kFormat, PrintableKey(text), {}, {}, "storage key '" + PrintableKey(text) + "' " + what};
  };
  const size_t marker = text.rfind(kMarker);
  if (marker == std::string::npos || marker == 0) return error("has no '/shard_' after a key");
  const std::string_view rest = std::string_view(text).substr(marker + kMarker.size());
  const size_t split = rest.find('_');
  if (split == std::string_view::npos) return error("has no '_' between offset and shape");
  const auto offset = ParseDotted(rest.substr(0, split));
  auto shape = ParseDotted(rest.substr(split + 1));
  if (!offset || !shape) return error("has an offset or shape that is not numbers joined by dots");
  if (shape->size() + 1 == offset->size()) shape->push_back(-1);
  if (shape->size() != offset->size())
    return error("has an offset of " + std::to_string(offset->size()) + " axes and a shape of " +
                 std::to_string(shape->size()));
  return ObjectKey{text.substr(0, marker), *offset, *shape};
}

}  // namespace kintsugi::layout
