// RendezvousWords: what is said while the nodes of a run meet: when, who is missing, and what to look at.
//
// Threads: none; pure.
// Errors: none.
// Invariants: said after five seconds, and then every thirty.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace kintsugi {

class RendezvousWords {
 public:
  void Begin(TimePoint now) { begun_ = now, next_ = now + std::chrono::seconds(5); }
  // Whether it is time to say something again.
  bool IsDue(TimePoint now) {
    if (now < next_) return false;
    next_ = now + std::chrono::seconds(30);
    return true;
  }
  Duration waited(TimePoint now) const { return now - begun_; }

 private:
  TimePoint begun_, next_;
};

// "1, 4 and 126 more".
std::string ListOf(const std::vector<int>& nodes);
// What to look at where a place was not reached, by what was seen: nobody listens, no answer at all, no such name.
std::string MeetingHint(const std::string& why);

// Of node 0's own address, where no other host can reach it; empty: others may.
std::string LoopbackHint(const std::string& address);

}  // namespace kintsugi
