#include "runtime/sim/run_log.h"

namespace kintsugi::sim {

void RunLog::Line(const std::string& text) const {
  if (!log_) return;
  const std::string at = Milliseconds(scheduler_.now() - start_);
  std::string line = std::string(at.size() < 12 ? 12 - at.size() : 0, ' ') + at + "  ";
  // Handlers may say anything; a log is text.
  for (const char c : text) line += c >= ' ' && c <= '~' ? c : '?';
  log_(line);
}

void Violations::Break(Promise promise, const std::string& text) {
  all_.push_back({promise, text});
  log_.Line("VIOLATION: " + all_.back().ToString());
}

}  // namespace kintsugi::sim
