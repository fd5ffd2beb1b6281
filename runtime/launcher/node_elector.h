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

#include "runtime/launcher/electorate.h"
#include "runtime/launcher/home_block.h"
#include "runtime/launcher/leader_line.h"
#include "runtime/launcher/leader_seat.h"
#include "runtime/launcher/meeting_words.h"
#include "runtime/launcher/node_reporter.h"
#include "runtime/launcher/node_splits.h"
#include "runtime/launcher/node_state.h"

namespace kintsugi {

class NodeElector {
 public:
  NodeElector(NodeState& state, Electorate& electorate, LeaderLine& line, HomeBlock& block, NodeReporter& reporter,
              NodeSplits& splits, LeaderSeat& seat, NodeEnds& ends);

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
  void OnMessage(const wire::NodeFrame& frame, const Electorate::Reply& reply);
  void OnAsked(const wire::NodeHello& hello, const Electorate::Reply& reply);
  void OnVoteRequest(const wire::VoteRequest& request, const Electorate::Reply& reply);
  void OnOrder(const wire::NodeOrderFrame& frame);
  std::string WhyRefused(const wire::NodeHello& hello) const;
  // Its leader is known to live: it leads itself, or is connected.
  bool knows_leader() const { return line_.leads() && (seat_.taken() || line_.connected()); }

  NodeState& state_;
  Electorate& electorate_;
  LeaderLine& line_;
  HomeBlock& block_;
  NodeReporter& reporter_;
  NodeSplits& splits_;
  LeaderSeat& seat_;
  NodeEnds& ends_;
  std::map<int, wire::NodeHello> asked_;  // the first leader's: nodes that have asked, before anybody leads
  TimePoint seek_until_, asked_at_;
  MeetingWords words_;
  Status misfit_;  // why no run can come of those that ask
};

}  // namespace kintsugi
