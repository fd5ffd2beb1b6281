// SnapshotPoints: orders for in-memory snapshots, and the boundary at which they are taken: the order comes on the
// agent's thread, the trainer's passes the boundary, the service copies on threads of its own. None of them waits for
// another.
//
// An order and the boundary it names may cross each other. Both sides write first and look then (the trainer its
// progress, the agent the order), so that at least one of them sees the other, and one exchange decides who answers.
// Threads: Arm and Abort are the agent's; IsDue and Take the trainer's.
// Ownership: of nothing; the service is the trainer's.
// Errors: come as reports to the controller.
// Invariants: an order is answered once: taken, refused, or aborted.
#pragma once

#include <atomic>

#include "runtime/agent/agent_thread.h"
#include "runtime/agent/gate.h"
#include "runtime/agent/membership.h"
#include "runtime/agent/rank_page.h"
#include "runtime/agent/registration.h"
#include "runtime/agent/store_client.h"

namespace kintsugi {

class SnapshotPoints {
 public:
  SnapshotPoints(const Membership& self, const Registration& registered, const RankPage& page, const Gate& gate,
                 StoreClient& store, AgentThread& thread)
      : self_(self), registered_(registered), page_(page), gate_(gate), store_(store), thread_(thread) {}

  void Arm(const core::ArmSnapshot& arm);
  void Abort();

  bool IsDue(Step boundary) const {
    return due_.load(std::memory_order_seq_cst) == boundary.value() && boundary.value() > 0;
  }
  void Take(Step boundary);

 private:
  void Tell(Generation generation, SnapshotReport report);

  const Membership& self_;
  const Registration& registered_;
  const RankPage& page_;
  const Gate& gate_;
  StoreClient& store_;
  AgentThread& thread_;
  std::atomic<uint64_t> due_{0};  // the thread that takes it out answers for it
};

}  // namespace kintsugi
