// ThreadGroup: collectives between the threads of one test, summed in rank order, and breakable from outside.
//
// Threads: every member belongs to one thread; Break may come from any.
// Ownership: the group owns its members; it must outlive their use.
// Errors: after Break every call, running or new, returns kCommFailure.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "integrations/examples/byte_lm/collectives.h"

namespace kintsugi::byte_lm {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size);
  ~ThreadGroup();
  Collectives& member(int rank);
  void Break();
  // The call with this number (of one member, from 0) fails on every member.
  void BreakAtCall(int call) { break_at_call_ = call; }

 private:
  class Member;
  Status Meet();  // a barrier

  const int size_;
  int break_at_call_ = -1;
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable moved_;
  int waiting_ = 0;
  long round_ = 0;
  bool broken_ = false;
  std::vector<float*> buffers_;
  std::vector<const float*> sources_;
  std::vector<float> sum_;
};

}  // namespace kintsugi::byte_lm
