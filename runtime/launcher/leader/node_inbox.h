// NodeInbox: what nodes tell the leader: that they are here and what runs there, what their workers do, what comes
// through their control sockets.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: a node that speaks of what is not its own is not heard.
// Invariants: of a rank only the node is heard that has it; what is left of a dead process is told before its end.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/controller/controller.h"
#include "runtime/controller/node_hub.h"
#include "runtime/core/node_return.h"
#include "runtime/launcher/leader/even_splits.h"
#include "runtime/launcher/leader/forwarded_requests.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/node_absence.h"
#include "runtime/launcher/leader/node_broadcast.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/launcher/workers/worker_events.h"

namespace kintsugi {

// The nodes, and the parts of the leader's side that hear of one, beside its run.
struct NodeParts : LedNodes {
  NodeAbsence& absence;
  ForwardedRequests& forwarded;
};

class NodeInbox final : public NodeEvents {
 public:
  NodeInbox(std::string job, NodeParts parts, Controller& controller, const RunAccount& account, WorkerEvents& workers,
            HostEvents& above, std::shared_ptr<LogSink> log);

  void OnNodeJoined(int node, const wire::NodeHello& hello) override;
  void OnNodeLost(int node) override;
  void OnNodeMessage(int node, const wire::NodeMessage& message) override;

 private:
  void EndWhatRunsThere(int node, const wire::NodeHello& hello);
  void FoundLives(int node, const std::map<Rank, wire::WorkerLife>& lives);
  void ComparedLives(int node, const std::map<Rank, wire::WorkerLife>& lives);
  void OnHeld(int node, const wire::NodeHeld& told);
  void OnPages(int node, const wire::Pages& pages);
  void OnReport(int node, const wire::WorkerReport& report);
  void OnExited(int node, const wire::WorkerExited& exited);
  void SetSpares(int node, int waiting);

  const std::string job_;
  const NodeParts parts_;
  Controller& controller_;
  const RunAccount& account_;
  WorkerEvents& workers_;
  HostEvents& above_;
  std::shared_ptr<LogSink> log_;
};

// As they are told to a node that comes too late, too.
wire::NodeEnd EndOrder(const RunAccount& account);

}  // namespace kintsugi
