// LeaderConnection: the connection of a node's launcher to the leader, and which node that is.
//
// Threads: one, which runs the io_context.
// Ownership: of the connection. The state and those above outlive it.
// Errors: what nothing heals (another secret, job or version, a refused hello) ends this node: NodeEnds::Fail.
// Invariants: nothing of an older term than the newest that was obeyed is carried out, nor of one that a promise
// excludes; a lost connection is mended, or its leader asked for again, until the node has ended.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/launcher/node/node_state.h"
#include "runtime/net/client.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// What the line asks of the launcher above it.
class LineEvents {
 public:
  virtual ~LineEvents() = default;
  virtual wire::NodeHello Hello() = 0;
  // A leader of a newer term than before speaks; then its order, as every one that is to be carried out.
  virtual void OnNewTerm() = 0;
  virtual void OnOrder(const wire::NodeOrder& order) = 0;
  // Callers that wait for an answer of the leader, and the agents here, wait for it in vain.
  virtual void OnLineLost(const std::string& why) = 0;
};

class LeaderConnection {
 public:
  LeaderConnection(boost::asio::io_context& io, NodeState& state, LineEvents& above, NodeEnds& ends)
      : io_(io), state_(state), above_(above), ends_(ends) {}

  // Connects to the one that leads under this term, in place of the one before.
  void Follow(Term term, const wire::Leads& leads);
  // By our own decision; Follow mends it.
  void Drop(const std::string& why);
  // What is queued is sent.
  void Close();
  // False: there is none, and nothing was said.
  bool Tell(const wire::NodeMessage& message);

  // Welcomed, and not lost since.
  bool connected() const { return connection_ != nullptr; }
  // When anything came on it last.
  TimePoint heard_at() const { return heard_at_; }
  // Of the newest controller that was obeyed.
  Term term() const { return term_; }
  // Who leads, as far as is known, and under which term.
  const std::optional<wire::Leads>& leads() const { return leads_; }
  Term leads_term() const { return leads_term_; }
  std::string LeadsFrame() const;
  // Where the ranks live, as that one says.
  void NotePlacement(const core::Placement& placement);
  // Why the last one could not be reached; empty: it could.
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  void Connect();
  void OnOpen(const net::ConnectionPtr& connection);
  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void OnClose(const Status& why);
  void OnUnreachable(const Status& why);
  void LoseLeader();

  boost::asio::io_context& io_;
  NodeState& state_;
  LineEvents& above_;
  NodeEnds& ends_;
  std::unique_ptr<net::Client> client_;
  net::ConnectionPtr connection_;
  TimePoint heard_at_;
  Term term_;
  std::optional<wire::Leads> leads_;
  Term leads_term_;
  std::string last_refusal_;
};

}  // namespace kintsugi
