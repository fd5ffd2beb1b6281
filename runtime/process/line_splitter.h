// LineSplitter: turns a stream of bytes into lines of bounded length.
//
// A line that outgrows the limit is handed out in pieces of that length; bytes are passed as they are, valid UTF-8 or
// not.
// Threads: one.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi {

class KINTSUGI_EXPORT LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;
  using LineFn = std::function<void(std::string_view line)>;  // without the newline; valid during the call

  explicit LineSplitter(size_t max_line_bytes = kMaxLineBytes) : max_line_bytes_(max_line_bytes) {}

  void Feed(std::string_view bytes, const LineFn& consume);

  // Hands out what came after the last newline, if anything did.
  void Flush(const LineFn& consume);

 private:
  size_t max_line_bytes_;
  std::string partial_;
};

}  // namespace kintsugi
