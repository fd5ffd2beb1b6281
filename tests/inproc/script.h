// Script: what a test makes happen to which rank at which point of which step, and who is held back where until the
// test, or an abort of the collectives, lets it go. Every uneven case is forced, none is waited for.
//
// Threads: any; each order is carried out once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "runtime/base/ids.h"

namespace kintsugi::inproc {

enum class Point {
  kForward,   // the step has begun, nothing is computed yet
  kBackward,  // the generator has been drawn from: live objects are half a step ahead
  kBeforeUpdate,  // gradients are summed, BeginUpdate comes next
  kInGate,    // the gate's barrier is over, but this rank is not let out yet (trainer's gate only)
  kUpdate,    // half of the update is done
  kCommitted,  // EndUpdate has returned
};

enum class Fault { kNone, kThrow, kThrowNumber, kCommError, kOwnError, kMemoryLow, kMemoryHigh, kInterrupted, kAbort };

class Script {
 public:
  using Where = std::tuple<int, uint64_t, Point>;  // rank, step, point

  void Do(int rank, uint64_t step, Point point, Fault fault);
  void Hold(int rank, uint64_t step, Point point);
  void Release(int rank, uint64_t step, Point point);
  void ReleaseAll();
  // Whether the rank came there, within a minute.
  bool AwaitReached(int rank, uint64_t step, Point point);

  // Called by trainers. `given_up`: whether what the rank waits in has been aborted.
  Fault Pass(int rank, uint64_t step, Point point, const std::function<bool()>& given_up);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Where, Fault> faults_;
  std::set<Where> holds_, reached_;
};

}  // namespace kintsugi::inproc
