#include "tools/logs/line_fold.h"

#include <algorithm>

namespace kintsugi::logs {

bool LineFold::Passes(LogLevel level, std::string_view line, TimePoint now) {
  Line key(level, line);
  if (const auto found = seen_.find(key); found != seen_.end()) {
    ++found->second.held;
    return false;
  }
  if (seen_.size() < kLinesMax) seen_.emplace(std::move(key), Seen{now});
  return true;
}

std::vector<LineFold::Line> LineFold::TakeDue(TimePoint now) {
  std::vector<Line> due;
  for (auto it = seen_.begin(); it != seen_.end();) {
    if (now < it->second.first + kWithin) {
      ++it;
      continue;
    }
    if (it->second.held > 0)
      due.emplace_back(it->first.first, it->first.second + " repeated=" + std::to_string(it->second.held));
    it = seen_.erase(it);
  }
  return due;
}

std::optional<TimePoint> LineFold::next() const {
  std::optional<TimePoint> next;
  for (const auto& [line, seen] : seen_)
    if (seen.held > 0 && (!next || seen.first + kWithin < *next)) next = seen.first + kWithin;
  return next;
}

}  // namespace kintsugi::logs
