// Collectives between threads, one Group per generation, abortable like the real ones: the aborter's own call ends with
// kCancelled, everybody else's with kCommFailure, and the group is of no use afterwards.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi::inproc {

class Group {
 public:
  explicit Group(int size) : size_(size) {}

  // In place. Contributions are added in rank order: the same bits on every rank, in every run.
  Status AllReduceSum(int rank, std::vector<float>* data);
  Status Barrier(int rank);
  // `rank` leaves: see above.
  void Abort(int rank);
  bool aborted() const;
  Status AbortedStatus(int rank) const;

 private:
  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> aborted_by_;
  std::map<int, size_t> calls_;                            // of each rank so far
  std::vector<std::map<int, std::vector<float>>> rounds_;  // contributions by rank
};

// The groups of all generations.
class Hub {
 public:
  explicit Hub(int size) : size_(size) {}
  std::shared_ptr<Group> Of(Generation generation);

 private:
  const int size_;
  std::mutex mutex_;
  std::map<Generation, std::shared_ptr<Group>> groups_;
};

}  // namespace kintsugi::inproc
