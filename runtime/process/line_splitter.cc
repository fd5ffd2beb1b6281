#include "runtime/process/line_splitter.h"

#include <algorithm>
#include <utility>

namespace kintsugi {

void LineSplitter::Feed(std::string_view bytes, const LineFn& consume) {
  while (!bytes.empty()) {
    const size_t room = max_line_bytes_ - partial_.size();
    const size_t newline = bytes.find('\n');
    const size_t line = std::min(newline, bytes.size());
    if (line > room) {  // too long: a piece of it goes out now
      partial_.append(bytes.substr(0, room));
      bytes.remove_prefix(room);
      Flush(consume);
      continue;
    }
    partial_.append(bytes.substr(0, line));
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    const std::string whole = std::exchange(partial_, {});
    consume(whole);
  }
}

void LineSplitter::Flush(const LineFn& consume) {
  if (partial_.empty()) return;
  const std::string rest = std::exchange(partial_, {});
  consume(rest);
}

}  // namespace kintsugi
