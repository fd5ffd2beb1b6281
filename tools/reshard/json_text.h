// JSON text, written piece by piece: answers may have millions of moves, which no document in memory should double.
//
// Threads: pure functions.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "replica/layout/box.h"

namespace kintsugi::reshard {

// With quotes; bytes that are no UTF-8 become U+FFFD.
std::string Quoted(std::string_view text);
template <typename Number>
void AppendNumber(Number number, std::string* out) {
  char digits[24];
  out->append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}
// "[[0, 3], [4, 8]]" without blanks.
void AppendBox(const layout::Box& box, std::string* out);
// "[1,2,3]".
template <typename T>
void AppendNumbers(std::span<const T> numbers, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i) *out += ',';
    AppendNumber(numbers[i], out);
  }
  *out += ']';
}
void AppendTexts(std::span<const std::string> texts, std::string* out);

}  // namespace kintsugi::reshard
