// NodeLauncher::Impl: the pool of this host's workers, the relay that their agents connect to, the link to the leader,
// the voice among other launchers, and the leader itself where it is this node.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>

#include "runtime/core/allegiance.h"
#include "runtime/launcher/agent_relay.h"
#include "runtime/launcher/electorate.h"
#include "runtime/launcher/leader.h"
#include "runtime/launcher/node_launcher.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/launcher/save_lease.h"
#include "runtime/launcher/stop_signals.h"
#include "runtime/launcher/witness.h"
#include "runtime/launcher/worker_pool.h"
#include "runtime/net/client.h"
#include "runtime/net/control_socket.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

class NodeLauncher::Impl final : public WorkerEvents {
 public:
  Impl(NodeLauncherOptions options, std::shared_ptr<LogSink> log);
  Result<NodeResult> Run();

  std::function<void(const RunProgress&)> listener_;

 private:
  Status SetUp();
  void OnSignal(int number, int times);
  void AskToStop();
  void Poll();
  void StopIfDone();
  void EndNow(int exit_code, const std::string& why);
  void Fail(Status why);

  // The link to the leader (node_link.cc).
  void Link(Term term, const wire::Leads& leads);
  void Unlink(const std::string& why);
  void Connect();
  void OnOpen(const net::ConnectionPtr& connection);
  void OnFrame(const net::ConnectionPtr& connection, std::string_view payload);
  void OnClose(const Status& why);
  void OnUnreachable(const Status& why);
  void OnWelcome(const wire::NodeWelcome& welcome);
  void OnPulse(const wire::NodePulse& pulse);
  bool Learn(const core::Placement& placement);
  void OnPlacement(const core::Placement& placement);
  void OnEnd(const wire::NodeEnd& end);
  void Tell(const wire::NodeMessage& message);
  // `always`: also where there is nothing to tell, since that says that this node is here.
  void TellPages(bool always = false);
  void NoteRegistered(std::string_view payload);
  wire::NodeHeld HeldOf(Rank rank, const std::optional<core::HeldState>& held) const;
  void Keep(wire::WorkerReport report);
  void RetellReports(size_t at_most);
  void OnTotals(const wire::KeepTotals& totals);
  wire::NodeHello Hello() const;

  // Who leads (node_leading.cc).
  void Seek();
  void NobodyFound();
  void OnAsked(const wire::NodeHello& hello, const Electorate::Reply& reply);
  void OnVoteRequest(const wire::VoteRequest& request, const Electorate::Reply& reply);
  void OnOrder(const wire::NodeOrderFrame& frame);
  std::string LeadsFrame() const;
  std::string WhyRefused(const wire::NodeHello& hello) const;
  core::ElectionCore::Standing Standing() const;
  void Elect();
  void Do(const core::ElectionCore::Decision& decision);
  void Found();
  void TakeOver(const core::ElectionCore::Lead& lead);
  void Lead(core::Policy policy, Term term, bool part);
  void StepDown(Term term);
  void OnLeaderDone();
  void PollWitness();
  void OnWord(TimePoint until);

  // WorkerEvents.
  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnHeld(Rank rank, const std::optional<core::HeldState>& held) override { Tell(HeldOf(rank, held)); }
  void OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                std::optional<TimePoint> since) override;
  void OnSpares(int waiting) override { Tell(wire::NodeSpares{waiting}); }
  void OnIdle() override { StopIfDone(); }

  // The control socket (node_control.cc).
  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  void AskLeader(const std::string& request, net::ControlSocket::Respond respond);
  void OnAskedHere(const wire::AskNode& asked);
  void OnAnswered(const wire::AnswerNode& answer);
  void ForgetAsked(const std::string& why);

  int LocalRanks() const { return options_.run.policy.world_size / options_.run.nodes; }
  bool is_node() const { return options_.controller < 0; }
  int self() const {
    if (!is_node()) return options_.run.nodes + options_.controller;
    return options_.node_rank + (options_.node_rank < options_.run.nodes ? 0 : options_.run.controllers);
  }
  // It has a part of the ranks. Else it is a controller, or a spare.
  bool has_ranks() const { return block_.has_value(); }
  bool Has(Rank rank) const { return block_ && rank.value() / LocalRanks() == *block_; }
  std::string name() const { return Name(self()); }
  std::string Name(int node) const {
    const int controller = node - options_.run.nodes;
    return controller >= 0 && controller < options_.run.controllers
               ? "controller " + std::to_string(controller)
               : "node " + std::to_string(NodeNumber(ShapeOf(options_.run), node));
  }
  // Whoever leads first.
  bool founds() const { return options_.controllers.empty() ? self() == 0 : options_.controller == 0; }

  NodeLauncherOptions options_;
  uint64_t launcher_id_ = 0;  // tells this launcher from another one with the same node rank
  std::shared_ptr<GenerationLog> log_;
  boost::asio::io_context io_;
  StopSignals signals_;
  boost::asio::steady_timer poll_;
  boost::asio::steady_timer leave_;
  boost::asio::steady_timer stop_end_;  // since this node asked the run to stop
  WorkerPool pool_;
  AgentRelay relay_;
  Electorate electorate_;
  core::ElectionCore election_;
  std::unique_ptr<net::ControlSocket> control_;
  std::map<uint64_t, net::ControlSocket::Respond> asked_leader_;  // by the number that the leader answers with
  uint64_t asked_so_far_ = 0;

  // The link.
  std::unique_ptr<net::Client> client_;
  net::ConnectionPtr link_;  // welcomed
  TimePoint heard_at_;       // anything on it
  Term term_;                // of the newest controller that welcomed us: an older one is not obeyed
  bool set_up_ = false;      // the pool knows what a welcome says
  Duration beat_ = std::chrono::milliseconds(250);
  TimePoint told_pages_;
  std::map<Rank, wire::Page> pages_;        // since they were last told
  std::map<Rank, std::string> registered_;  // by the newest process of each rank here, as its agent said it
  // This node's and those it keeps for others, for leaders to come; and how far the present one has been told of them.
  std::map<std::pair<uint64_t, Rank>, wire::WorkerReport> reports_;  // by step
  std::pair<uint64_t, Rank> retold_{UINT64_MAX, Rank()};
  core::LedgerTotals totals_;  // of all reports up to a step, which are not kept any more
  std::optional<TimePoint> stop_asked_;

  core::Placement placement_;  // the newest that is known of
  std::optional<int> block_;   // whose ranks are started here, by the leader's word

  // Who leads.
  std::optional<wire::Leads> leads_;  // the controller, as far as is known, and under which term
  Term leads_term_;
  std::unique_ptr<Leader> leader_;  // with this node
  bool leader_done_ = false;
  std::map<int, wire::NodeHello> asked_;  // of whoever leads first: nodes that have asked, before anybody leads
  TimePoint seek_until_, asked_at_, announced_at_;
  std::string last_refusal_;
  // What a leader must know that takes over.
  std::string policy_, master_address_;
  uint16_t master_port_ = 0;
  wire::NodePulse pulse_;
  std::string run_id_;                // names the run to the witness, and in its save directory
  std::unique_ptr<SaveLease> lease_;  // while this node leads

  // Even splits.
  std::unique_ptr<Witness> witness_;  // null: none
  core::TieRule tie_rule_ = core::TieRule::kLowestRank;
  uint64_t tie_order_ = 0;     // the newest one taken of the present leader
  bool lease_wanted_ = false;  // an election or the leader here asked for it

  Status failed_;
  std::optional<NodeResult> ended_;
};

}  // namespace kintsugi
