#include "runtime/launcher/leader/forwarded_requests.h"

#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/launcher/run/control_words.h"

namespace kintsugi {

uint64_t ForwardedRequests::Begin(int whom, Respond respond) {
  KINTSUGI_CHECK(respond != nullptr, "nobody waits for the answer");
  waiting_[++so_far_] = {whom, std::move(respond)};
  return so_far_;
}

void ForwardedRequests::OnAnswer(int whom, uint64_t number, const std::string& answer) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end() || found->second.whom != whom) return;
  const Respond respond = std::move(found->second.respond);
  waiting_.erase(found);
  respond(answer);
}

void ForwardedRequests::Refuse(uint64_t number, const std::string& why) {
  const auto found = waiting_.find(number);
  KINTSUGI_CHECK(found != waiting_.end(), "request " + std::to_string(number) + " is refused, and was answered");
  const Respond respond = std::move(found->second.respond);
  waiting_.erase(found);
  respond(RefusalLine(why));
}

// An answer may set off the next request: those that wait now are taken out first.
void ForwardedRequests::RefuseAllOf(int whom, const std::string& why) {
  std::vector<Respond> refused;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (waiting->second.whom != whom) {
      ++waiting;
      continue;
    }
    refused.push_back(std::move(waiting->second.respond));
    waiting = waiting_.erase(waiting);
  }
  for (const Respond& respond : refused) respond(RefusalLine(why));
}

}  // namespace kintsugi
