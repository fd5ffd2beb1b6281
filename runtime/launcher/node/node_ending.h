// NodeEnding: how a node's launcher comes to its end: the run has ended, it was cut off or refused, somebody wanted it
// to.
//
// Threads: one, which runs the io_context.
// Ownership: all that it is given outlives it.
// Errors: what kept the node from starting stands in NodeState::failed.
// Invariants: the io_context is stopped once no process of a rank is left here, what they said is sent, and a leader
// that is here is done; or at once, where the end is not to wait.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>

#include "runtime/launcher/node/leader_connection.h"
#include "runtime/launcher/node/local_leader.h"
#include "runtime/launcher/node/node_reporter.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/node/retained_reports.h"
#include "runtime/launcher/workers/worker_pool.h"

namespace kintsugi {

class NodeEnding final : public NodeEnds {
 public:
  NodeEnding(boost::asio::io_context& io, NodeState& state, WorkerPool& pool, LeaderConnection& to_leader,
             const RetainedReports& retained, NodeReporter& reporter, LocalLeader& local_leader);

  // The whole run is to save and end. The leader bounds what it can reach. It may itself be out of reach by then: this
  // node's grace is its own.
  void AskToStop();
  // The leader's word: the run has ended, or all loops are over and the processes leave by themselves.
  void End(const wire::NodeEnd& end);

  void Fail(Status why) override;
  void EndNow(int exit_code, const std::string& why) override;
  void OnLeft() override;
  void OnLeaderDone() override;
  void OnDisconnected() override;
  void OnUnreachable() override;

 private:
  void AwaitEnds();
  void StopUnlessLeading();

  boost::asio::io_context& io_;
  NodeState& state_;
  WorkerPool& pool_;
  LeaderConnection& to_leader_;
  const RetainedReports& retained_;
  NodeReporter& reporter_;
  LocalLeader& local_leader_;
  boost::asio::steady_timer leave_;
  boost::asio::steady_timer stop_end_;  // since this node asked the run to stop
};

}  // namespace kintsugi
