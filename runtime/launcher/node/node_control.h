// NodeControl: what comes through a node's control socket: faults for its own ranks are armed here, all else is the
// leader's to answer, wherever it is.
//
// Threads: one, that of the launcher.
// Ownership: all that it is given outlives it.
// Errors: a refusal is an answer.
// Invariants: each request is answered once; the leader is asked only for what a node cannot do alone, and asks a node
// only for what it alone can: nothing goes round in a circle.
#pragma once

#include <string>

#include "runtime/launcher/leader/forwarded_requests.h"
#include "runtime/launcher/node/leader_connection.h"
#include "runtime/launcher/node/local_block.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/workers/worker_pool.h"
#include "runtime/net/control_socket.h"

namespace kintsugi {

class NodeOperators {
 public:
  virtual ~NodeOperators() = default;
  // The whole run is to save and end.
  virtual void AskToStop() = 0;
  // Where this node leads: the leader answers, and true.
  virtual bool AnswerAsLeader(const std::string& request, const net::ControlSocket::Respond& respond) = 0;
};

class NodeControl {
 public:
  NodeControl(NodeState& state, WorkerPool& pool, LeaderConnection& to_leader, LocalBlock& block, NodeOperators& above)
      : state_(state), pool_(pool), to_leader_(to_leader), block_(block), above_(above) {}

  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  // What the leader asks here, what it answers, and that it is lost.
  void OnAsked(const wire::AskNode& asked);
  void OnAnswered(const wire::AnswerNode& answer) { forwarded_.OnAnswer(kLeader, answer.id, answer.answer); }
  void OnLineLost(const std::string& why) { forwarded_.RefuseAllOf(kLeader, why); }

 private:
  // The leader; it is one at a time.
  static constexpr int kLeader = 0;
  void AskLeader(const std::string& request, net::ControlSocket::Respond respond);

  NodeState& state_;
  WorkerPool& pool_;
  LeaderConnection& to_leader_;
  LocalBlock& block_;
  NodeOperators& above_;
  ForwardedRequests forwarded_;
};

}  // namespace kintsugi
