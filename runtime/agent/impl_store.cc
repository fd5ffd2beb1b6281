// Rendezvous through the control plane: requests go out on the agent's thread, answers wake the caller's.
#include <algorithm>
#include <boost/asio/post.hpp>

#include "runtime/agent/impl.h"
#include "runtime/core/store_table.h"

namespace kintsugi {

bool Agent::Impl::EnterStore(Generation generation) {
  if (generation < store_generation_) return false;
  if (generation == store_generation_) return true;
  store_generation_ = generation;
  store_waits_.clear();
  store_sets_.clear();
  return true;
}

Status Agent::Impl::StoreSet(Generation generation, const std::string& key, const std::vector<uint8_t>& value) {
  if (ended_) return {StatusCode::kCancelled, "store key '" + key + "': the run has ended"};
  using core::StoreTable;
  if (key.size() > StoreTable::kKeyBytesMax || value.size() > StoreTable::kValueBytesMax)
    return {StatusCode::kResourceExhausted,
            "store key '" + key.substr(0, 64) + "' of " + std::to_string(key.size()) + " bytes with a value of " +
                std::to_string(value.size()) + ": the limits are " + std::to_string(StoreTable::kKeyBytesMax) +
                " and " + std::to_string(StoreTable::kValueBytesMax) + ", the store is for addresses and ids"};
  core::StoreSet set{key, value};
  {
    std::lock_guard lock(mutex_);
    if (!EnterStore(generation))
      return {StatusCode::kCancelled, "store key '" + key + "': generation " + generation.ToString() + " is over"};
    store_sets_.push_back(set);
  }
  boost::asio::post(io_, [this, generation, message = std::move(set)] { Send(generation, message); });
  return Status::Ok();
}

Result<std::vector<uint8_t>> Agent::Impl::StoreGet(Generation generation, const std::string& key, TimePoint deadline) {
  const TimePoint begun = SteadyClock::SteadyNow();
  const std::string where = "store key '" + key + "' of generation " + generation.ToString();
  std::unique_lock lock(mutex_);
  if (!EnterStore(generation)) return Status(StatusCode::kCancelled, where + ": a newer generation has begun");
  // Asked before, by a call that could not wait long enough: where the way is longer than that, asking anew would never
  // hear the answer.
  auto asked = std::find_if(store_waits_.begin(), store_waits_.end(),
                            [&](const auto& entry) { return entry.second->key == key; });
  if (asked == store_waits_.end()) {
    const uint64_t request = next_store_request_++;
    asked = store_waits_.emplace(request, std::make_shared<StoreWait>(StoreWait{key, {}})).first;
    boost::asio::post(io_, [this, generation, message = core::StoreGet{request, key}] { Send(generation, message); });
  }
  const uint64_t request = asked->first;
  const std::shared_ptr<StoreWait> wait = asked->second;
  const auto until = std::chrono::steady_clock::time_point(deadline.since_epoch());
  const bool answered = changed_.wait_until(
      lock, until, [&] { return wait->reply.has_value() || end_.has_value() || store_generation_ != generation; });
  if (wait->reply) {
    if (store_generation_ == generation) store_waits_.erase(request);
    if (wait->reply->code == StatusCode::kOk) return wait->reply->value;
    return Status(wait->reply->code, where + " was not answered: a newer generation has begun");
  }
  if (end_) return Status(StatusCode::kCancelled, where + ": the run has ended");
  if (answered) return Status(StatusCode::kCancelled, where + ": a newer generation has begun");
  return Status(StatusCode::kDeadlineExceeded,
                where + " did not appear within " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - begun))) + " ms");
}

void Agent::Impl::OnStoreAnswered(const core::StoreReply& reply) {
  {
    std::lock_guard lock(mutex_);
    const auto asked = store_waits_.find(reply.request);
    if (asked == store_waits_.end()) return;
    asked->second->reply = reply;
  }
  changed_.notify_all();
}

// Setting twice is harmless, and so is asking: the first answer counts.
void Agent::Impl::AskStoreAgain() {
  std::vector<core::AgentMessage> again;
  Generation generation;
  {
    std::lock_guard lock(mutex_);
    generation = store_generation_;
    again.assign(store_sets_.begin(), store_sets_.end());
    for (const auto& [request, wait] : store_waits_)
      if (!wait->reply) again.push_back(core::StoreGet{request, wait->key});
  }
  if (generation != core_->generation()) return;
  for (const core::AgentMessage& message : again) Send(generation, message);
}

}  // namespace kintsugi
