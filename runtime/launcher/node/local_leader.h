// LocalLeader: the leader of the run, where it is this node: what it begins with, first or after another one, and that
// it gives way.
//
// Threads: one, which runs the io_context.
// Ownership: of the Leader and of the lease on the save directory while it leads. All else outlives it.
// Errors: a policy or an address with which nobody can lead ends this node: NodeEnds::Fail.
// Invariants: at most one Leader; it is followed from here like from everywhere; one that stepped down decides nothing.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "runtime/launcher/leader/leader.h"
#include "runtime/launcher/lease/save_lease.h"
#include "runtime/launcher/node/election_transport.h"
#include "runtime/launcher/node/leader_connection.h"
#include "runtime/launcher/node/local_block.h"
#include "runtime/launcher/node/node_splits.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/node/retained_reports.h"
#include "runtime/launcher/run/run_history.h"

namespace kintsugi {

// What a node has kept of the run for whoever leads it next: where its ranks live, the sums of their reports, what it
// was under the leaders before.
struct KeptRun {
  const LocalBlock& block;
  const RetainedReports& retained;
  const RunHistory& history;
};

class LocalLeader {
 public:
  LocalLeader(boost::asio::io_context& io, NodeState& state, ElectionTransport& transport, LeaderConnection& to_leader,
              const KeptRun& kept, NodeSplits& splits, NodeEnds& ends);

  void OnProgress(std::function<void(const RunProgress&)> listener) { listener_ = std::move(listener); }
  // Null: another node leads.
  Leader* leader() const { return leader_.get(); }
  bool taken() const { return leader_ != nullptr; }
  // It leads, and its run is not over.
  bool leads() const { return leader_ && !done_; }

  // The run begins. `first`: the node whose rank 0 is, where that is another one.
  void Found(const wire::NodeHello* first);
  void TakeOver(const core::ElectionCore::Lead& lead);
  // Another one leads, under a newer term: this one was not heard, and may not decide any more.
  void StepDown(Term term);
  // This launcher leaves, and the run goes on: the others elect another.
  void Leave();

  // A node that is away, or starts anew, learns now and then where the controller is.
  void Announce(TimePoint now);
  // Every few milliseconds.
  void Poll();
  // What the witness says, and what the leader that is followed says.
  void OnWord(TimePoint until);
  void OnTieRule() const;

 private:
  // What was counted before this one leads: as the leader told, and since then nobody stepped with one.
  wire::RunSoFar Before() const;
  void Lead(core::Policy policy, Term term, bool part);
  void OnDone();

  boost::asio::io_context& io_;
  NodeState& state_;
  ElectionTransport& transport_;
  LeaderConnection& to_leader_;
  const KeptRun kept_;
  NodeSplits& splits_;
  NodeEnds& ends_;
  std::function<void(const RunProgress&)> listener_;
  std::unique_ptr<SaveLease> lease_;
  std::unique_ptr<Leader> leader_;
  bool done_ = false;
  TimePoint announced_at_;
};

}  // namespace kintsugi
