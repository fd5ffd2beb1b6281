#include "runtime/agent/store_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"
#include "runtime/core/store_table.h"

namespace kintsugi {
namespace {

class StoreOf final : public Store {
 public:
  StoreOf(StoreClient& client, Generation generation) : client_(client), generation_(generation) {}
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    return client_.Set(generation_, key, value);
  }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    return client_.Get(generation_, key, deadline);
  }

 private:
  StoreClient& client_;
  const Generation generation_;
};

}  // namespace

std::unique_ptr<Store> StoreClient::Of(Generation generation) { return std::make_unique<StoreOf>(*this, generation); }

bool StoreClient::Enter(Generation generation) {
  if (generation < generation_) return false;
  if (generation == generation_) return true;
  generation_ = generation;
  waits_.clear();
  sets_.clear();
  changed_.NotifyAll();
  return true;
}

Status StoreClient::Set(Generation generation, const std::string& key, const std::vector<uint8_t>& value) {
  using core::StoreTable;
  if (key.size() > StoreTable::kKeyBytesMax || value.size() > StoreTable::kValueBytesMax)
    return {StatusCode::kResourceExhausted,
            "store key '" + key.substr(0, 64) + "' of " + std::to_string(key.size()) + " bytes with a value of " +
                std::to_string(value.size()) + ": the limits are " + std::to_string(StoreTable::kKeyBytesMax) +
                " and " + std::to_string(StoreTable::kValueBytesMax) + ", the store is for addresses and ids"};
  core::StoreSet set{key, value};
  {
    const MutexLock lock(mutex_);
    if (ended_) return {StatusCode::kCancelled, "store key '" + key + "': the run has ended"};
    if (!Enter(generation))
      return {StatusCode::kCancelled, "store key '" + key + "': generation " + generation.ToString() + " is over"};
    sets_.push_back(set);
  }
  send_(generation, std::move(set));
  return Status::Ok();
}

Result<std::vector<uint8_t>> StoreClient::Get(Generation generation, const std::string& key, TimePoint deadline) {
  const TimePoint begun = SteadyClock::SteadyNow();
  const std::string where = "store key '" + key + "' of generation " + generation.ToString();
  MutexLock lock(mutex_);
  if (!Enter(generation)) return Status(StatusCode::kCancelled, where + ": a newer generation has begun");
  auto asked = std::find_if(waits_.begin(), waits_.end(), [&](const auto& entry) { return entry.second->key == key; });
  if (asked == waits_.end()) {
    const uint64_t request = next_request_++;
    asked = waits_.emplace(request, std::make_shared<Wait>(Wait{key, {}})).first;
    lock.Unlock();
    send_(generation, core::StoreGet{request, key});
    lock.Lock();
    asked = waits_.find(request);
    if (asked == waits_.end()) return Status(StatusCode::kCancelled, where + ": a newer generation has begun");
  }
  const uint64_t request = asked->first;
  KINTSUGI_CHECK(request < next_request_ && asked->second->key == key, "a wait for another question");
  const std::shared_ptr<Wait> wait = asked->second;
  const auto due = [&]() KINTSUGI_REQUIRES(mutex_) {
    return wait->reply.has_value() || ended_ || generation_ != generation;
  };
  const bool answered = changed_.WaitUntil(lock, std::chrono::steady_clock::time_point(deadline.since_epoch()), due);
  if (wait->reply) {
    if (generation_ == generation) waits_.erase(request);
    if (wait->reply->code == StatusCode::kOk) return wait->reply->value;
    return Status(wait->reply->code, where + " was not answered: a newer generation has begun");
  }
  if (ended_) return Status(StatusCode::kCancelled, where + ": the run has ended");
  if (answered) return Status(StatusCode::kCancelled, where + ": a newer generation has begun");
  return Status(StatusCode::kDeadlineExceeded,
                where + " did not appear within " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - begun))) + " ms");
}

void StoreClient::OnAnswered(const core::StoreReply& reply) {
  const MutexLock lock(mutex_);
  const auto asked = waits_.find(reply.request);
  if (asked == waits_.end()) return;
  asked->second->reply = reply;
  changed_.NotifyAll();
}

void StoreClient::CancelWaits() {
  const MutexLock lock(mutex_);
  for (auto& [request, wait] : waits_)
    if (!wait->reply) wait->reply = core::StoreReply{request, StatusCode::kCancelled, {}};
  changed_.NotifyAll();
}

// Setting twice is harmless, and so is asking: the first answer counts.
void StoreClient::SayAgain(Generation generation) {
  std::vector<core::AgentMessage> again;
  {
    const MutexLock lock(mutex_);
    if (generation != generation_) return;
    again.assign(sets_.begin(), sets_.end());
    for (const auto& [request, wait] : waits_)
      if (!wait->reply) again.push_back(core::StoreGet{request, wait->key});
  }
  for (core::AgentMessage& message : again) send_(generation, std::move(message));
}

void StoreClient::End() {
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace kintsugi
