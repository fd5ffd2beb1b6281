// Controller: the driver around ControllerCore. Hosted by the launcher, by `kintsugi controller`, or by a rank.
//
// It owns the listening socket, the rendezvous store and the ledger of reports, translates frames to events and actions
// to frames, and leaves processes to its host.
// Threads: one, which runs the io_context; Feed and every callback run on it.
// Errors: Start: what Server::Listen says. What peers do wrong is counted and shown in status.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/port_range.h"
#include "runtime/controller/line_budget.h"
#include "runtime/controller/refusal_log.h"
#include "runtime/controller/report_ledger.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/store_table.h"
#include "runtime/journal/options.h"
#include "runtime/net/server.h"

namespace kintsugi {

namespace journal {
class Recorder;
}

// Who can start and end processes, and who wants to know.
class ControllerHost {
 public:
  virtual ~ControllerHost() = default;
  virtual void Spawn(Rank rank, Incarnation incarnation) = 0;
  virtual void Kill(Rank rank, Incarnation incarnation, const std::string& reason) = 0;
  virtual void OnTransition(const core::Transition& transition) = 0;
  virtual void OnIncident(const core::IncidentRecord& record) = 0;
  virtual void OnCheckpoint(const core::Checkpoint& /*checkpoint*/) {}
  virtual void OnSave(const core::SaveSettled& /*settled*/) {}
  // Something of a rank is not what an undisturbed run would have, told once.
  virtual void OnInexact(Rank /*rank*/, const std::string& /*text*/) {}
  // A rank could not reach another one; an incident goes on and on; a host is taken for away.
  virtual void OnRoadClosed(const core::RoadClosed& /*road*/) {}
  virtual void OnAttempts(const core::AttemptsGrow& /*grown*/) {}
  // Why ranks wait for longer than they are known to.
  virtual void OnHang(const core::Blame& /*blame*/) {}
  virtual void OnCutOff(const core::NodeCutOff& /*cut*/) {}
  // Other ranks take part from now on.
  virtual void OnCrew(const core::CrewChanged& /*crew*/) {}
  virtual void OnScaleRefused(const core::ScaleRefused& /*refused*/) {}
  virtual void OnReplaceRefused(const core::ReplaceRefused& /*refused*/) {}
  virtual void OnNotice(Rank rank, const std::string& text) = 0;
  virtual void OnEnded(const core::RunEnded& ended) = 0;
  virtual void OnAskWitness() {}  // its word is given with Feed
};

// The part that speaks to the launchers of other nodes (node_hub.h).
class NodePort {
 public:
  virtual ~NodePort() = default;
  virtual void OnFrame(const net::ConnectionPtr& connection, std::string_view payload) = 0;
  virtual void OnClose(const net::ConnectionPtr& connection) = 0;
};

struct ControllerOptions {
  core::Policy policy;
  Term term{1, 1};
  std::string job;
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;  // 0: any of `ports`
  PortRange ports;
  net::TransportLimits limits;
  std::shared_ptr<const net::TlsContext> tls;  // null: without TLS
};

class Controller {
 public:
  Controller(boost::asio::io_context& io, ControllerOptions options, std::shared_ptr<const net::Secret> secret,
             ControllerHost& host, std::shared_ptr<LogSink> log);
  ~Controller();

  // Listens; the port is known afterwards.
  Status Listen();
  // Connections of launchers are this one's from now on; without it they are closed. It outlives the io_context's run.
  void ServeNodes(NodePort& nodes) { nodes_ = &nodes; }
  // An agent's frame, or its end, on a connection of its own or on a node's channel.
  void OnAgentFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void OnAgentClose(const net::ConnectionPtr& connection);
  // Everything that goes into the core from now on is recorded; the run never depends on it. REQUIRES: before Start.
  Status Record(const journal::RecorderOptions& options);
  // Begins the run: the host is asked to spawn every rank.
  void Start();
  uint16_t port() const { return server_->port(); }

  void Feed(const core::ControllerEvent& event);
  // A sign of life of a rank that a launcher watches, and where it stands.
  void FeedBeat(Rank rank, Incarnation incarnation, uint64_t count, const Progress& place);
  void SetInjections(Rank rank, std::vector<std::string> injections);

  // With a run that is taken over: what its leader had folded. REQUIRES: nothing was reported here yet.
  void TakeTotals(core::LedgerTotals folded);
  const core::ControllerCore& core() const { return core_; }
  ReportLedger& reports() { return reports_; }
  const net::TransportCounters& counters() const { return server_->counters(); }
  uint64_t refused_frames() const { return refused_frames_; }

 private:
  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void RefuseFrame(const net::ConnectionPtr& connection, const std::string& why);
  void Act(const core::ControllerAction& action);
  void Tell(const core::Notice& notice);
  void Answer(const std::vector<core::StoreTable::Answer>& answers);
  void SendTo(Rank rank, Incarnation incarnation, const core::Header& header, const core::ControllerMessage& message);
  void OnJoin(const net::ConnectionPtr& connection, const core::Header& header, const core::JoinRequest& join);
  // Nothing: nobody has joined through it, nor waits for the answer.
  std::optional<Rank> JoinedAs(const net::ConnectionPtr& connection) const;
  void AnswerWaitingJoins();
  void AnswerJoin(Rank rank, Incarnation incarnation, const core::Header& header, const core::JoinReply& reply);
  void Disconnect(Rank rank, Incarnation incarnation);
  void ScheduleTick();
  std::vector<core::ControllerAction> StepCore(const core::ControllerEvent& event);

  struct Peer {
    Rank rank;
    Incarnation incarnation;
  };

  struct WaitingJoin {
    net::ConnectionPtr connection;
    core::Header header;
    core::JoinRequest join;
  };

  boost::asio::io_context& io_;
  const ControllerOptions options_;
  std::shared_ptr<const net::Secret> secret_;
  ControllerHost& host_;
  NodePort* nodes_ = nullptr;
  std::shared_ptr<LogSink> log_;
  core::ControllerCore core_;
  std::unique_ptr<journal::Recorder> recorder_;  // may be null
  core::StoreTable store_;
  ReportLedger reports_;
  RefusalLog refusals_;
  std::map<Rank, LineBudget> notices_;  // each rank its own: one that floods hides no other
  std::unique_ptr<net::Server> server_;
  boost::asio::steady_timer tick_;
  net::ConnectionPtr joining_;              // while the core judges its join
  std::vector<WaitingJoin> waiting_joins_;  // while the core takes over; answered afterwards
  std::map<uint64_t, Peer> peers_;          // by connection id: who joined through it
  std::map<Rank, std::pair<Incarnation, net::ConnectionPtr>> connections_;  // of the living incarnations
  uint64_t refused_frames_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace kintsugi
