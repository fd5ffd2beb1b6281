// Rendezvous through the control plane: requests go out on the agent's thread, answers wake the caller's.
#include <boost/asio/post.hpp>

#include "runtime/agent/impl.h"

namespace kintsugi {

Status Agent::Impl::StoreSet(Generation generation, const std::string& key, const std::vector<uint8_t>& value) {
  if (ended_) return {StatusCode::kCancelled, "store key '" + key + "': the run has ended"};
  boost::asio::post(io_, [this, generation, message = core::StoreSet{key, value}] { Send(generation, message); });
  return Status::Ok();
}

Result<std::vector<uint8_t>> Agent::Impl::StoreGet(Generation generation, const std::string& key, TimePoint deadline) {
  const TimePoint begun = SteadyClock::SteadyNow();
  std::unique_lock lock(mutex_);
  const uint64_t request = next_store_request_++;
  store_waits_[request] = std::nullopt;
  boost::asio::post(io_, [this, generation, message = core::StoreGet{request, key}] { Send(generation, message); });
  const auto until = std::chrono::steady_clock::time_point(deadline.since_epoch());
  const bool answered =
      changed_.wait_until(lock, until, [&] { return store_waits_[request].has_value() || end_.has_value(); });
  const std::optional<core::StoreReply> reply = store_waits_[request];
  store_waits_.erase(request);
  const std::string where = "store key '" + key + "' of generation " + generation.ToString();
  if (reply && reply->code == StatusCode::kOk) return reply->value;
  if (reply) return Status(reply->code, where + " was not answered: a newer generation has begun");
  if (answered) return Status(StatusCode::kCancelled, where + ": the run has ended");
  return Status(StatusCode::kDeadlineExceeded,
                where + " did not appear within " +
                    std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - begun))) + " ms");
}

}  // namespace kintsugi
