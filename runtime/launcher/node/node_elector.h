// NodeElector: who leads: asked for at the start, heard of others, elected when the leader is lost.
//
// Threads: one, which runs the io_context.
// Ownership: all that it is given outlives it.
// Errors: Listen: the address or port cannot be taken. Where nobody is found who leads, or this launcher is refused,
// the node ends: NodeEnds::Fail.
// Invariants: the first leader begins once every node has asked it; a candidate leads with a majority, or a part that
// it only saves; core::ElectionCore decides, and core::AnswerLeads whom to turn to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/launcher/node/election_transport.h"
#include "runtime/launcher/node/leader_connection.h"
#include "runtime/launcher/node/local_block.h"
#include "runtime/launcher/node/local_leader.h"
#include "runtime/launcher/node/node_reporter.h"
#include "runtime/launcher/node/node_splits.h"
#include "runtime/launcher/node/node_state.h"
#include "runtime/launcher/node/rendezvous_words.h"

namespace kintsugi {

class NodeElector {
 public:
  NodeElector(NodeState& state, ElectionTransport& transport, LeaderConnection& to_leader, LocalBlock& block,
              NodeReporter& reporter, NodeSplits& splits, LocalLeader& local_leader, NodeEnds& ends);

  // Where others hear this one, and where it hears them.
  Status Listen();
  void BeginToSeek(TimePoint now);
  // Every few milliseconds.
  void Poll(TimePoint now);

 private:
  void Seek(TimePoint now);
  // Nobody is left to wonder for whom it waits.
  void TellWaiting(TimePoint now);
  std::vector<int> Missing() const;
  std::string SoughtPlace() const;
  void NobodyFound();
  void Elect(TimePoint now);
  void Do(const core::ElectionCore::Decision& decision);
  void OnMessage(const wire::NodeFrame& frame, const ElectionTransport::Reply& reply);
  void OnAsked(const wire::NodeHello& hello, const ElectionTransport::Reply& reply);
  void OnVoteRequest(const wire::VoteRequest& request, const ElectionTransport::Reply& reply);
  void OnOrder(const wire::NodeOrderFrame& frame);
  std::string WhyRefused(const wire::NodeHello& hello) const;
  // Its leader is known to live: it leads itself, or is connected.
  bool knows_leader() const { return to_leader_.leads() && (local_leader_.taken() || to_leader_.connected()); }

  NodeState& state_;
  ElectionTransport& transport_;
  LeaderConnection& to_leader_;
  LocalBlock& block_;
  NodeReporter& reporter_;
  NodeSplits& splits_;
  LocalLeader& local_leader_;
  NodeEnds& ends_;
  std::map<int, wire::NodeHello> asked_;  // the first leader's: nodes that have asked, before anybody leads
  TimePoint seek_until_, asked_at_;
  RendezvousWords words_;
  Status misfit_;  // why no run can come of those that ask
};

}  // namespace kintsugi
