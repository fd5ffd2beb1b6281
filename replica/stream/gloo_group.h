// GlooGroup: the collectives a data-parallel trainer needs, over Gloo, abortable from another thread.
//
// Results are deterministic: one fixed algorithm (ring) for every size, so that the same inputs give the same bits in every
// run, on every rank of the group.
// A rank connects to the members its collectives talk to (GlooPairs; 2 log2(size) at most), not to all: connecting and ending is
// what an incident waits for. Several groups connect together, through one publication in the store (ConnectAll).
// Threads: one thread runs collectives; Abort may come from any thread at any moment and ends the running collective within
// a millisecond.
// Errors: kCancelled after Abort; kCommFailure when a peer is gone; connecting adds the Store's own errors and
// kDeadlineExceeded. After an error the group is of no use: destroy it, join the next generation, connect a new one. Where
// Send and Receive do not fit each other both give kInvalidArgument, and the group is as before.
// Each collective is marked (runtime/docs/hangs.md), so that a rank that does not come to one can be named.
// Ownership: owns its context; the device may be shared by several groups of one generation, then Abort ends them all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/orders.h"
#include "callbacks/handlers/store.h"
#include "replica/stream/rank_address.h"
#include "runtime/base/clock.h"
#include "runtime/base/collective_call.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/status.h"

namespace gloo {
class Context;
}

namespace kintsugi {

// One device serves all groups of a generation: its one I/O thread and its one Abort.
class AbortableDevice;
using GlooDevice = std::shared_ptr<AbortableDevice>;
// Errors: as AbortableDevice::Create.
KINTSUGI_EXPORT Result<GlooDevice> CreateGlooDevice(const RankAddress& address = {});
// Ends what runs over the device, from any thread; for good.
KINTSUGI_EXPORT void AbortGlooDevice(const GlooDevice& device);

// What connecting needs, for one group or several.
struct GlooJoin {
  std::string prefix;             // names the rendezvous in the store; no two of one store share it
  int rank = 0;                   // of this rank among those that meet
  TimePoint deadline;             // of connecting
  GlooDevice device;              // null: made for these groups
  RankAddress address;            // of that device
  CancelToken* cancel = nullptr;  // ends connecting; afterwards it is the owner who calls Abort
  // Gets whom this rank dialed in vain: HandlerContext::unreached, in a rebuild handler. Ranks are those that meet.
  std::vector<UnreachedPeer>* unreached = nullptr;
};

// Which members of a group connect to each other. Connecting and ending them is what an incident waits for.
enum class GlooPairs : uint8_t {
  kRing,         // the two next ones: all-reduce and all-gather
  kRingAndTree,  // also those at distances of powers of two: broadcast and barrier
  kEvery,        // all, for collectives of one's own that need it
};

// A group by its members' ranks, in the group's order. Ranks and pairs are the same on all of them.
struct GlooMembers {
  std::string name;  // no two groups of one rank share it
  std::vector<int> ranks;
  GlooPairs pairs = GlooPairs::kRingAndTree;
};

struct GlooGroupOptions {
  std::string prefix;  // names the group in the store; no two groups of one store share it
  int rank = 0;        // within the group
  int size = 1;
  TimePoint deadline;             // of connecting
  GlooDevice device;              // null: the group makes its own
  RankAddress address;            // of that device
  CancelToken* cancel = nullptr;  // ends connecting; afterwards it is the owner who calls Abort
  std::vector<UnreachedPeer>* unreached = nullptr;  // as GlooJoin's
};

class KINTSUGI_EXPORT GlooGroup {
 public:
  // Connects all ranks of the group. Bounded by the deadline, by `cancel` and by the store's own cancellation; a peer
  // that dies after it published its address counts as absent.
  static Result<std::unique_ptr<GlooGroup>> Connect(Store& store, const GlooGroupOptions& options);
  // The same for several groups at once, in their order; this rank is a member of each.
  static Result<std::vector<std::unique_ptr<GlooGroup>>> ConnectAll(Store& store, const GlooJoin& join,
                                                                    const std::vector<GlooMembers>& groups);
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  // In place, over all ranks. `count` is the same on every rank, here and below.
  Status AllReduceSum(float* data, size_t count);
  Status AllReduceSum(double* data, size_t count);
  // `all` takes size() * `count_each` elements, in rank order.
  Status AllGather(const float* mine, size_t count_each, float* all);
  Status AllGather(const uint8_t* mine, size_t count_each, uint8_t* all);
  Status Broadcast(float* data, size_t count, int root);
  Status Broadcast(uint8_t* data, size_t count, int root);
  Status Barrier();

  // Point to point, as between the stages of a pipeline: each Send meets one Receive of that member, in their order, and
  // returns when all bytes are on their way. They wait for each other: of two neighbours that exchange, one sends first.
  // Both say beforehand how many bytes: other sizes, or two that both send or both receive, are kInvalidArgument on
  // both sides, with both sizes, and nothing is written. 0 bytes: they meet.
  // The two must be connected (GlooMembers::pairs): neighbours of the ring always are.
  Status Send(const void* data, size_t size_bytes, int to);
  Status Receive(void* data, size_t size_bytes, int from);

  void Abort();
  int rank() const;
  int size() const;
  const GlooDevice& device() const { return device_; }
  // For collectives of one's own, with <gloo/context.h>: Gloo's functions that take an options object are abortable on
  // it. One that talks to other members than GlooMembers::pairs connects throws, naming both.
  const std::shared_ptr<gloo::Context>& context() const { return context_; }

 private:
  GlooGroup(std::string place, GlooDevice device, std::shared_ptr<gloo::Context> context, int marks);
  Status Run(const char* what, const CollectiveCall& call, const std::function<void()>& collective);
  template <typename T>
  Status Sum(T* data, size_t count);
  void GatherInTwoRounds(uint8_t* all, size_t bytes_each);
  template <typename T>
  Status Gather(const T* mine, size_t count_each, T* all);
  template <typename T>
  Status Cast(T* data, size_t count, int root);
  Status Meet(bool sends, void* data, size_t size_bytes, int peer);

  const std::string place_;
  GlooDevice device_;
  std::shared_ptr<gloo::Context> context_;
  const int marks_;  // its place among the marks of this process
};

}  // namespace kintsugi
