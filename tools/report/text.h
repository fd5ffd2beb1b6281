// Text for people and for machines: escaping of whatever comes from outside, and numbers in a fixed, locale-free form.
//
// Threads: pure functions.
// Errors: none; every input, valid or hostile, has an output that is valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/utf8.h"

namespace kintsugi {

// Valid UTF-8 that means itself in HTML text and in quoted attributes. Control characters and those that turn the
// direction of the text around (a way to make a page show what is not there) become U+FFFD.
std::string EscapeHtml(std::string_view text);

// At most `max_bytes` of `text`, cut between characters, with an ellipsis where something was left out.
std::string Elide(std::string_view text, size_t max_bytes);

// `value` with exactly `decimals` digits after the point; "n/a" where it is not finite.
std::string Fixed(double value, int decimals);

// "4.2 ms", "301 ms", "12.3 s", with a no-break space; the absent value is "not reached".
std::string FormatMs(std::optional<double> milliseconds);

// "768 B", "12.3 MiB".
std::string FormatBytes(uint64_t bytes);

// 1234567 as "1 234 567", with narrow no-break spaces.
std::string FormatCount(uint64_t value);

// A number of digits that fits a loss: four decimals, more where the value is tiny.
std::string FormatLoss(std::optional<double> loss);

// "1 rank", "3 ranks".
std::string Counted(uint64_t count, std::string_view one, std::string_view many);

}  // namespace kintsugi
