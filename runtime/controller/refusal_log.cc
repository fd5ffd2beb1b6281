#include "runtime/controller/refusal_log.h"

namespace kintsugi {

void RefusalLog::Write(std::string_view event, const std::string& peer, const std::string& why, TimePoint now) {
  if (now - window_began_ >= kWindow) {
    if (left_out_ > 0)
      sink_->Write(LogLevel::kWarning, LogLine("refusals_not_shown", {{"count", std::to_string(left_out_)}}));
    window_began_ = now;
    lines_ = left_out_ = 0;
  }
  if (lines_ == kLinesPerWindow) {
    ++left_out_;
    return;
  }
  ++lines_;
  sink_->Write(LogLevel::kWarning, LogLine(event, {{"peer", peer}, {"why", why.substr(0, kWhyBytesMax)}}));
}

}  // namespace kintsugi
