// NodeReporter: what this host's workers do, told to the leader: signs of life of all of them together, reports, ends,
// what is held of the dead. What a leader to come must hear again is kept.
//
// Threads: one, that of the launcher.
// Ownership: all that it is given outlives it.
// Errors: what is not told, because nobody leads, is told with the next hello where it still matters.
// Invariants: where a rank stood is told before its end.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launcher/node/leader_connection.h"
#include "runtime/launcher/node/local_block.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/node/retained_reports.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/launcher/workers/worker_pool.h"

namespace kintsugi {

class NodeReporter final : public WorkerEvents {
 public:
  NodeReporter(NodeState& state, WorkerPool& pool, LeaderConnection& to_leader, const LocalBlock& block,
               RetainedReports& retained, NodeEnds& ends)
      : state_(state), pool_(pool), to_leader_(to_leader), block_(block), retained_(retained), ends_(ends) {}

  // What lives here and what is held. `port`: where this launcher hears others.
  wire::NodeHello Hello(uint16_t port) const;
  // How often pages are told, as the leader wants it.
  void SetBeat(Duration beat);
  // Every few milliseconds.
  void Poll(TimePoint now);
  // Now; `always`: also where there is nothing to tell, since that says that this node is here.
  void TellPages(bool always = false);
  // Reports that this leader has not been told of.
  void RetellReports(size_t at_most);
  // How the processes of all ranks here ended that run no more: the leader may not have heard.
  void TellEnds();
  // An agent's frame on its way to the leader. What the processes here registered is kept beside their memory: a leader
  // to come may find nobody else who knows.
  void NoteRegistered(std::string_view payload);

  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnHeld(Rank rank, const std::optional<core::HeldState>& held) override { to_leader_.Tell(HeldOf(rank, held)); }
  void OnExited(Rank rank, Incarnation incarnation, const WorkerEnd& end) override;
  void OnSpares(int waiting) override { to_leader_.Tell(wire::NodeSpares{waiting}); }
  void OnIdle() override { ends_.OnLeft(); }

 private:
  void TellEnd(Rank rank, Incarnation incarnation, const WorkerEnd& end);
  wire::NodeHeld HeldOf(Rank rank, const std::optional<core::HeldState>& held) const;

  NodeState& state_;
  WorkerPool& pool_;
  LeaderConnection& to_leader_;
  const LocalBlock& block_;
  RetainedReports& retained_;
  NodeEnds& ends_;
  Duration beat_ = std::chrono::milliseconds(250);
  TimePoint told_pages_;
  std::map<Rank, wire::Page> pages_;        // since they were last told
  std::map<Rank, WorkerEnd> ends_here_;     // of ranks whose newest process has ended
  std::map<Rank, std::string> registered_;  // by the newest process of each rank here, as its agent said it
};

}  // namespace kintsugi
