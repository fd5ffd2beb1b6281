// ThreadCost: CPU time of the calling thread since a moment. Internal to replica/snapshot.
#pragma once

#include <ctime>

#include "runtime/base/clock.h"

namespace kintsugi {

class ThreadCost {
 public:
  ThreadCost() : began_(Now()) {}
  Duration Spent() const { return Now() - began_; }

 private:
  static Duration Now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  const Duration began_;
};

}  // namespace kintsugi
