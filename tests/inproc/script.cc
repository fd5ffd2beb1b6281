#include "tests/inproc/script.h"

#include <chrono>
#include <utility>

namespace kintsugi::inproc {

using namespace std::chrono_literals;

void Script::Do(int rank, uint64_t step, Point point, Fault fault) {
  std::lock_guard lock(mutex_);
  faults_[{rank, step, point}] = fault;
}

void Script::Hold(int rank, uint64_t step, Point point) {
  std::lock_guard lock(mutex_);
  holds_.insert({rank, step, point});
}

void Script::Release(int rank, uint64_t step, Point point) {
  std::lock_guard lock(mutex_);
  holds_.erase({rank, step, point});
  changed_.notify_all();
}

void Script::ReleaseAll() {
  std::lock_guard lock(mutex_);
  holds_.clear();
  changed_.notify_all();
}

bool Script::AwaitReached(int rank, uint64_t step, Point point) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, 60s, [&] { return reached_.count({rank, step, point}) > 0; });
}

Fault Script::Pass(int rank, uint64_t step, Point point, const std::function<bool()>& given_up) {
  const Where where{rank, step, point};
  std::unique_lock lock(mutex_);
  reached_.insert(where);
  changed_.notify_all();
  if (holds_.count(where)) {
    // The group's abort does not wake this condition, so it is looked at now and then.
    while (holds_.count(where) && !given_up()) changed_.wait_for(lock, 2ms);
    holds_.erase(where);
  }
  const auto found = faults_.find(where);
  if (found == faults_.end()) return Fault::kNone;
  const Fault fault = found->second;
  faults_.erase(found);
  return fault;
}

}  // namespace kintsugi::inproc
