// UTF-8 of whatever bytes come from outside.
//
// Threads: pure functions.
// Errors: none; every input has an output.
#pragma once

#include <string>
#include <string_view>

namespace kintsugi {

struct Utf8Character {
  char32_t code = 0;
  size_t length = 1;
  bool is_valid = false;
};

// U+FFFD, which stands for what is no character.
inline constexpr std::string_view kUtf8Replacement = "\xEF\xBF\xBD";

// The character at the front of `text`. Overlong forms, surrogates and values beyond U+10FFFF are invalid (RFC 3629); an
// invalid byte is taken alone, so that decoding goes on behind it. REQUIRES: `text` is not empty.
Utf8Character DecodeUtf8(std::string_view text);

// `bytes` with every byte that is not part of valid UTF-8 replaced by U+FFFD: what JSON can hold.
std::string ToUtf8(std::string_view bytes);

}  // namespace kintsugi
