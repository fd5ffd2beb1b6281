// MemoryStore: a Store for tests, shared by the threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "callbacks/handlers/store.h"

namespace kintsugi {

class MemoryStore final : public Store {
 public:
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return Status::Ok();
  }

  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::time_point(deadline.since_epoch());
    const bool there = changed_.wait_until(lock, until, [&] { return cancelled_ || values_.count(key) > 0; });
    if (cancelled_) return Status(StatusCode::kCancelled, "the generation is superseded");
    if (!there) return Status(StatusCode::kDeadlineExceeded, "no key '" + key + "'");
    return values_[key];
  }

  // Every wait, now and later, fails: what a newer generation does.
  void Cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<uint8_t>> values_;
  bool cancelled_ = false;
};

inline TimePoint In(Duration duration) { return SteadyClock::SteadyNow() + duration; }

}  // namespace kintsugi
