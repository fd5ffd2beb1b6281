// JSON text, written piece by piece: answers may have millions of moves, which no document in memory should double.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "replica/layout/box.h"

namespace kintsugi::reshard {

// With quotes; bytes that are no UTF-8 become U+FFFD.
std::string Quoted(std::string_view text);
// "[[0, 3], [4, 8]]" without blanks.
void AppendBox(const layout::Box& box, std::string* out);
// "[1,2,3]".
template <typename T>
void AppendNumbers(std::span<const T> numbers, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) *out += (i ? "," : "") + std::to_string(numbers[i]);
  *out += ']';
}
void AppendTexts(std::span<const std::string> texts, std::string* out);

}  // namespace kintsugi::reshard
