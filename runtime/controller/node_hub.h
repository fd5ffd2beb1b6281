// NodeHub: the controller's side of a run's nodes, its own host's among them. A node's launcher has one connection; the
// agents of its ranks speak through it, each on a channel, and look to the Controller like connections of their own.
//
// Threads: one, which runs the io_context.
// Errors: a launcher that does not fit (job, number of nodes, a node that is connected already from elsewhere) is
// refused with a reason. What else does not fit is counted and told in the log: a launcher that was taken in goes on
// as before, one that was not loses its connection.
// Invariants: nothing of a node reaches the Controller before its hello was accepted. A connection speaks for the node
// that it said hello as, and for no other. When it is lost, its channels are closed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/controller/controller.h"
#include "runtime/controller/refusal_log.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// What nodes tell, but for what their agents say. `node`: its rank among the nodes.
class NodeEvents {
 public:
  virtual ~NodeEvents() = default;
  virtual void OnNodeJoined(int node, const wire::NodeHello& hello) = 0;
  virtual void OnNodeLost(int node) = 0;
  virtual void OnNodeMessage(int node, const wire::NodeMessage& message) = 0;
};

// How nodes are told something, by the part that has it to tell.
class NodeOrders {
 public:
  virtual ~NodeOrders() = default;
  // False: the node is not connected, and nothing was sent.
  virtual bool Send(int node, const wire::NodeOrder& order) = 0;
  // What nodes are told with their welcome.
  virtual void SetPlacement(core::Placement placement) = 0;
};

struct NodeHubOptions {
  std::string job;
  Term term;
  int nodes = 1;
  int local_ranks = 1;
  std::string master_address;
  uint16_t master_port = 0;
  Duration beat = std::chrono::milliseconds(250);
  std::string policy;  // as words, for launchers that may have to take over
  std::string run;     // names the run to a witness
  std::string page;    // of this leader, for people
  // Its own, to be compared with those of each node (wire::NodeHello).
  std::string version;
  std::vector<std::string> alike, own;
  bool witness = false;
  int controllers = 0;                         // processes without ranks that may lead
  Duration silence = std::chrono::seconds(1);  // silent for so long, one may be replaced by another launcher
};

class NodeHub final : public NodePort, public NodeOrders {
 public:
  NodeHub(NodeHubOptions options, Controller& controller, NodeEvents& events, std::shared_ptr<LogSink> log);
  ~NodeHub() override;

  bool Send(int node, const wire::NodeOrder& order) override;
  void SetPlacement(core::Placement placement) override { placement_ = std::move(placement); }
  bool connected(int node) const { return connections_[IndexOf(node)].connection != nullptr; }
  bool any_connected() const { return connected_ > 0; }
  uint64_t refused_frames() const { return refused_frames_; }

  // Now and then: launchers that claim the place of one that has fallen silent.
  void Poll(TimePoint now);

  // NodePort.
  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload) override;
  void OnClose(const net::ConnectionPtr& connection) override;

 private:
  class Channel;
  struct NodeConnection {
    net::ConnectionPtr connection;  // null: the node is not connected
    std::string address;
    std::map<uint64_t, std::shared_ptr<Channel>> channels;
  };
  // The launcher that is this node, beyond its connection.
  struct Incumbent {
    uint64_t launcher = 0;  // 0: nobody's yet
    std::string address;
    TimePoint heard_at;
  };
  // Another launcher that says it is this node. The incumbent's next sign of life refuses it, its silence lets it in.
  struct Claimant {
    net::ConnectionPtr connection;  // null: none
    wire::NodeHello hello;
  };
  struct Slot {
    Incumbent incumbent;
    Claimant claimant;
    std::set<uint64_t> replaced;  // launchers that were silent for too long: they are not let in again
  };

  size_t IndexOf(int node) const;
  NodeConnection& ConnectionOf(int node) { return connections_[IndexOf(node)]; }
  Slot& SlotOf(int node) { return slots_[IndexOf(node)]; }
  void TakeIn(const net::ConnectionPtr& connection, const wire::NodeHello& hello);
  void TellDifferences(const wire::NodeHello& hello);
  void ShowOut(const net::ConnectionPtr& connection, const std::string& why);
  void RefuseClaimant(int node);
  // The node that the connection waits to be; nothing: it claims none.
  std::optional<int> ClaimOf(const net::ConnectionPtr& connection) const;
  void DropClaim(const net::ConnectionPtr& connection);
  void OnHello(const net::ConnectionPtr& connection, const wire::NodeHello& hello);
  std::string WhyRefused(const wire::NodeHello& hello) const;
  void OnAgentFrame(int node, uint64_t channel, const std::string& frame);
  void OnAgentClosed(int node, uint64_t channel);
  // Counted and told. A connection that was not taken in is closed.
  void Refuse(const net::ConnectionPtr& connection, const std::string& why);
  void Count(const net::ConnectionPtr& connection, const std::string& why);

  const NodeHubOptions options_;
  core::Placement placement_;
  Controller& controller_;
  NodeEvents& events_;
  std::shared_ptr<LogSink> log_;
  RefusalLog refusals_;
  std::vector<NodeConnection> connections_;  // by node; a connection's mark is its node
  std::vector<Slot> slots_;                  // by node
  std::set<uint64_t> compared_;              // launchers whose differences were told
  int connected_ = 0;
  uint64_t channels_made_ = 0;
  uint64_t refused_frames_ = 0;
  bool ended_ = false;  // nodes were told that the run is over: they leave
};

}  // namespace kintsugi
