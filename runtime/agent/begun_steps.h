// BegunSteps: when this process began each of its newest steps, and which updates an error of a certain age makes
// suspect.
//
// Threads: Note is one thread's; any thread may ask meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/agent.h"
#include "runtime/base/clock.h"

namespace kintsugi {

class BegunSteps {
 public:
  void Note(Step step, TimePoint now) {
    begun_ns_[step.value() % kKept].store(now.nanoseconds(), std::memory_order_relaxed);
  }
  // The first update that may hold damage from `when`, of a rank whose newest update is `newest` and that computes
  // `computing`; 0: none. This rank's part in update s was over when it began step s + 1; of the newest it is not known,
  // and it counts. What is older than all that is remembered makes everything suspect.
  Step SuspectFrom(ErrorTime when, uint64_t newest, uint64_t computing) const;

 private:
  static constexpr uint64_t kKept = 64;
  int64_t At(uint64_t step) const { return begun_ns_[step % kKept].load(std::memory_order_relaxed); }

  std::array<std::atomic<int64_t>, kKept> begun_ns_{};  // 0: it did not
};

}  // namespace kintsugi
