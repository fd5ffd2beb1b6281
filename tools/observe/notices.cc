#include "tools/observe/notices.h"

#include <charconv>
#include <utility>

namespace kintsugi::observe {

Result<Webhook> ParseWebhook(const std::string& url) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, "--webhook '" + url + "' " + why);
  };
  if (url.rfind(kHttps, 0) == 0)
    return refuse(
        "asks for TLS, which is not spoken here: name a local proxy that speaks it, or use --on-incident 'curl ...'");
  if (url.rfind(kHttp, 0) != 0) return refuse("is not http://HOST[:PORT][/PATH]");
  const std::string rest = url.substr(kHttp.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string host = rest.substr(0, slash);
  Webhook to;
  to.endpoint.port = 80;
  if (slash < rest.size()) to.target = rest.substr(slash);
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    unsigned port = 0;
    const char* end = host.data() + host.size();
    const auto parsed = std::from_chars(host.data() + colon + 1, end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end || port == 0 || port > 65535)
      return refuse("has no port after its colon: http://HOST[:PORT][/PATH]");
    to.endpoint.port = static_cast<uint16_t>(port);
    host = host.substr(0, colon);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find('@') != std::string::npos) return refuse("names no host: http://HOST[:PORT][/PATH]");
  for (const char c : to.target)
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return refuse("has a character that an address must escape");
  to.endpoint.host = host;
  return to;
}

void NoticeReceiver::Tell(std::string json) {
  if (waiting_.size() >= kWaitingMax) {
    waiting_.pop_front();
    if (dropped_++ == 0)
      log_->Write(LogLevel::kWarning, LogLine("notices_dropped", {{"receiver", name()}, {"why", "it is too slow"}}));
  }
  waiting_.push_back(std::move(json));
  if (!under_way_) Next();
}

void NoticeReceiver::Next() {
  if (waiting_.empty()) {
    if (on_idle_) on_idle_();
    return;
  }
  under_way_ = true;
  const std::string json = std::move(waiting_.front());
  waiting_.pop_front();
  Begin(json);
}

void NoticeReceiver::Done(const Status& how) {
  if (!how.ok())
    log_->Write(LogLevel::kWarning, LogLine("notice_lost", {{"receiver", name()}, {"why", how.message()}}));
  under_way_ = false;
  Next();
}

}  // namespace kintsugi::observe
