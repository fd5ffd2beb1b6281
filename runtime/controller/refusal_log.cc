#include "runtime/controller/refusal_log.h"

namespace kintsugi {

void RefusalLog::Write(std::string_view event, const std::string& peer, const std::string& why, TimePoint now) {
  const LineBudget::Answer answer = budget_.Ask(now);
  if (answer.left_out > 0)
    sink_->Write(LogLevel::kWarning, LogLine("refusals_not_shown", {{"count", std::to_string(answer.left_out)}}));
  if (answer.write)
    sink_->Write(LogLevel::kWarning, LogLine(event, {{"peer", peer}, {"why", why.substr(0, kWhyBytesMax)}}));
}

}  // namespace kintsugi
