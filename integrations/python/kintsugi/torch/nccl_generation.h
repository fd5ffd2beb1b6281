// NcclGeneration: all communicators of this process for one generation, which are ended together.
//
// What: communicators are blocking, so that a collective costs what it costs in plain torch. Each is known here before its init
// runs, so that one that waits for an absent peer can be ended. A stop is in two phases, both in one NCCL group on a thread that
// was made with the generation, holds no lock of Python's and makes no CUDA call: first the flags of all communicators at once,
// which ends kernels, inits and calls that are stuck; their memory later, once no thread of this process is inside NCCL and
// everybody may free, since a free can pull buffers from under a neighbour's kernel.
// Threads: any. Cut waits 2 ms at most, for calls that are under way as usual.
// Errors: c10::Error. Void() says that what any collective has left since is worth nothing.
#pragma once

#include <nccl_functions.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace kintsugi::torch_door {

class NcclGeneration {
 public:
  explicit NcclGeneration(std::shared_ptr<const NcclFunctions> nccl);
  // As Cut and Free, without waiting.
  ~NcclGeneration();
  NcclGeneration(const NcclGeneration&) = delete;
  NcclGeneration& operator=(const NcclGeneration&) = delete;

  struct Member {
    int ranks = 1;
    int rank = 0;
    NcclId id{};
  };
  // All of them in one NCCL group: blocks until every rank of each has come, or Cut.
  std::vector<NcclComm> Connect(const std::vector<Member>& members);

  // Where a thread is inside NCCL. Throws where the generation was cut before.
  class Call {
   public:
    explicit Call(NcclGeneration& generation);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    NcclGeneration& generation_;
  };

  // Phase one. Returns at once but for what is said above; a second call does nothing.
  void Cut();
  bool Void() const;
  void CheckNotVoid() const;
  // Phase two, once all ranks that live have drained: waits until the memory is free, false: not within `limit`. Then the thread is
  // left behind with what it holds.
  bool Free(std::chrono::milliseconds limit);

  const NcclFunctions& nccl() const { return *nccl_; }

 private:
  struct State;
  const std::shared_ptr<const NcclFunctions> nccl_;
  const std::shared_ptr<State> state_;
};

// Threads that were left behind with communicators so far.
int LeftBehind();

}  // namespace kintsugi::torch_door
