// GlobMatch: the pattern language of `tensors=`: * is any run of characters, ? is any one, everything else is itself.
//
// Why not fnmatch: brackets, backslashes and locales would give tensor names such as "layers[0].w" a second meaning.
#pragma once

#include <cstddef>
#include <string_view>

namespace kintsugi {

// Takes at most size(pattern) * size(name) comparisons: remembers only the last star.
constexpr bool GlobMatch(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace kintsugi
