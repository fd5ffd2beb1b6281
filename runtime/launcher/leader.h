// Leader: the controller's side of a run, wherever the run's processes are. One Controller, what is known of every
// rank's process, the run's result, and the requests of `kintsugi status` and its like.
//
// With one host the pool of its workers is at hand. With several, every host's launcher has a connection here, that of
// the leader's own host too: all nodes are alike, and the leader may be anywhere.
// Threads: one, which runs the io_context.
// Errors: Listen: what keeps the controller from starting.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/controller/controller.h"
#include "runtime/controller/node_hub.h"
#include "runtime/core/placement.h"
#include "runtime/core/witness.h"
#include "runtime/launcher/control_words.h"
#include "runtime/launcher/fired_injections.h"
#include "runtime/launcher/generation_log.h"
#include "runtime/launcher/launcher.h"
#include "runtime/launcher/operator_desk.h"
#include "runtime/launcher/run_observer.h"
#include "runtime/launcher/run_times.h"
#include "runtime/launcher/worker_pool.h"
#include "runtime/net/control_socket.h"

namespace kintsugi {

struct LeaderOptions {
  LauncherOptions run;
  Term term{1, 1};
  bool part = false;           // elected by no majority: it saves what is there, and leaves
  std::string master_address;  // for the trainers' own use
  uint16_t master_port = 0;
  std::string run_id;         // names the run to a witness
  core::LedgerTotals totals;  // with a run that is taken over: what its leader had folded of all reports
  Generation generation;      // with a run that is taken over: the newest in which all ranks were in their loops
  core::Placement placement;  // likewise: where the ranks live, as far as is known
  std::function<void()> on_ask_witness;
};

class Leader final : public ControllerHost, public WorkerEvents, public NodeEvents {
 public:
  // `local`: with one host its workers; else null. `on_done`: the run is over and everybody has left, or the leader was
  // told to end at once.
  Leader(boost::asio::io_context& io, LeaderOptions options, WorkerPool* local, std::shared_ptr<GenerationLog> log,
         std::function<void()> on_done);
  ~Leader() override;

  Status Listen(std::shared_ptr<const net::Secret> secret);
  uint16_t port() const { return controller_->port(); }
  Term term() const { return options_.term; }
  void OnProgress(std::function<void(const RunProgress&)> listener) { listener_ = std::move(listener); }
  // Begins the run, or takes it over: at once with one host, else when every node is there.
  void Start();
  // Now and then: progress, nodes that do not come back, pulses.
  void Poll();
  // Save and leave, within the grace period.
  void Stop();
  void EndNow(const std::string& why);
  // With a witness: what this node goes by at even splits; until when it holds the lease; what all nodes should go by.
  void TakeTieRule(core::TieRule rule);
  void TakeWord(TimePoint until);
  void WantTieRule(std::optional<core::TieRule> wanted);
  // The run has ended, and not for want of a majority.
  bool ended_for_all() const {
    return ended_ && controller_->core().phase() == core::Phase::kEnded && !controller_->core().minority();
  }
  bool ended() const { return ended_; }
  std::vector<int> NodesAway() const;
  // Those that are here and have no ranks.
  std::vector<int> SpareNodes() const;
  RunResult TakeResult();
  // What can be seen of the run now (sight.cc); and all that its result would hold, but for the timings of single steps.
  RunSight Look() const;
  RunResult ResultSoFar() const;
  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);

  // WorkerEvents, of this host and of others (events.cc).
  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnHeld(Rank rank, const std::optional<core::HeldState>& held) override;
  void OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                std::optional<TimePoint> since) override;
  void OnSpares(int waiting) override { SetSpares(0, waiting); }
  void OnIdle() override { StopIfDone(); }

 private:
  // What is known of a rank's newest process, wherever it runs.
  struct RankView {
    std::optional<PageView> page;
    uint64_t step = 0;  // newest step begun, and when
    TimePoint step_began;
    std::optional<size_t> life;  // index into result_.lives
  };
  // A node's part of the run: what waits until its launcher is there.
  struct Node {
    int number = 0;
    std::map<Rank, Incarnation> to_spawn;
    TimePoint lost_at;                          // where it is not connected
    TimePoint pulsed_at;                        // last sign of the leader's life
    bool said_away = false, said_gone = false;  // to the logs, of this absence
    wire::NodePlace place;
    bool knows_totals = false;  // since it was last welcomed
    bool seen = false;          // it was here once
  };

  const LauncherOptions& run() const { return options_.run; }
  void Record();
  void Record(Rank rank, uint64_t step, double loss, const core::SampleSum& samples);
  void StopIfDone();
  RankView& View(Rank rank) { return views_[static_cast<size_t>(rank.value())]; }

  // ControllerHost.
  void Spawn(Rank rank, Incarnation incarnation) override;
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override;
  void OnTransition(const core::Transition& transition) override;
  void OnIncident(const core::IncidentRecord& record) override;
  void OnCheckpoint(const core::Checkpoint& checkpoint) override;
  void OnSave(const core::SaveSettled& settled) override;
  void OnNotice(Rank rank, const std::string& text) override;
  void OnEnded(const core::RunEnded& ended) override;
  void OnAskWitness() override { options_.on_ask_witness(); }

  wire::NodeEnd EndOrder() const { return {result_.exit_code, result_.text, stop_asked_.has_value()}; }
  bool AllAtSavePoint() const;
  // Into the log here and of every node.
  void Say(LogLevel level, const std::string& line);
  void SetSpares(int node, int waiting);
  void MarkStep(Rank rank, const PageView& page);
  void ReportProgress();

  // Nodes (nodes.cc).
  int NodeOf(Rank rank) const { return placement_.NodeOf(rank.value() / LocalRanks()); }
  int LocalRanks() const { return run().policy.world_size / run().nodes; }
  bool OfNode(Rank rank, int node) const {
    return rank.value() >= 0 && rank.value() < run().policy.world_size && NodeOf(rank) == node;
  }
  std::optional<int> BlockOf(int node) const { return placement_.BlockOf(node, run().nodes); }
  bool HasRanks(int node) const { return BlockOf(node).has_value(); }
  int FirstOf(int node) const { return *BlockOf(node) * LocalRanks(); }
  bool IsSpare(int node) const {
    return !HasRanks(node) && (node < run().nodes || node >= run().nodes + run().controllers);
  }
  std::string NodeName(int node) const;
  std::string RanksOf(int block) const;
  void StartWhenComplete();
  void CheckNodes();
  bool SpareHere() const;
  void MoveBlocks();
  void TakePlacement();
  void EndWhatRunsThere(int node, const wire::NodeHello& hello);
  void CheckGrace();
  void OnNotBegun(Rank rank, Incarnation incarnation);
  void SayAway(Node& node);
  void SayGone(Node& node);
  std::string WhyNotBack(int node) const;
  Node& NodeAt(int node) { return nodes_[static_cast<size_t>(node)]; }
  Duration PulseEvery() const;
  void Pulse(Node& node);
  void PulseNodes(Duration silent_for);
  void TellPlaces();
  void TellTotals();
  void OnNodeJoined(int node, const wire::NodeHello& hello) override;
  void OnNodeLost(int node) override;
  void OnNodeMessage(int node, const wire::NodeMessage& message) override;
  void OnNodeHeld(int node, const wire::NodeHeld& told);
  void ComparedLives(int node, const std::map<Rank, wire::WorkerLife>& lives);
  void FoundLives(int node, const std::map<Rank, wire::WorkerLife>& lives);

  void FillResult(RunResult* result) const;
  void LookAt(RankSight* seen) const;

  // Control socket (control.cc).
  void ForgetAsked(int node);
  void AskNodeOf(Rank rank, const std::string& request, net::ControlSocket::Respond respond);

  boost::asio::io_context& io_;
  const LeaderOptions options_;
  WorkerPool* const local_;
  std::shared_ptr<GenerationLog> log_;
  const std::function<void()> on_done_;
  std::function<void(const RunProgress&)> listener_;
  boost::asio::steady_timer leave_;
  std::unique_ptr<Controller> controller_;
  std::optional<OperatorDesk> desk_;  // with the controller
  std::unique_ptr<NodeHub> hub_;      // with several nodes
  std::vector<Node> nodes_;
  core::Placement placement_;
  std::map<int, bool> newcomers_;           // since others were last told: whether it listens elsewhere than before
  bool tells_at_once_ = true;               // once between two polls
  std::map<int, int> spares_;               // waiting on each node
  std::optional<core::TieAgreement> ties_;  // with a witness
  core::TieRule tie_rule_ = core::TieRule::kNobody;
  Generation running_generation_;  // the newest in which all ranks were in their loops
  bool started_ = false;
  bool began_ = false;  // ranks were in their loops
  std::vector<core::Checkpoint> checkpoints_;
  std::vector<RankView> views_;
  RunResult result_;
  bool ended_ = false;
  std::optional<TimePoint> stop_asked_;
  TimePoint last_progress_, last_pulse_, last_totals_;
  uint64_t told_totals_ = 0, told_curve_every_ = 1;  // to nodes: up to which step
  size_t told_curve_ = 0;
  uint64_t progress_step_ = 0;
  TimePoint progress_step_at_;
  double samples_per_second_ = 0;
  FiredInjections fired_;
  RunTimes times_;
  StepTimes step_times_;
  IncidentTally tally_;
  struct Asked {
    int node = 0;
    net::ControlSocket::Respond respond;
  };
  std::map<uint64_t, Asked> asked_nodes_;  // by the number that the node answers with
  uint64_t asked_so_far_ = 0;
};

// For the launchers' polls: carries out what was ordered, shows what is wanted. `leader`: null where another node leads.
template <typename Node, typename Carry>
void Attend(RunObserver* observer, const Leader* leader, const Node& node, const Carry& carry_out) {
  if (observer)
    for (RunObserver::Order& order : observer->TakeOrders()) carry_out(order.request, std::move(order.respond));
  const RunObserver::Wants wants = observer ? observer->wants() : RunObserver::Wants::kNothing;
  if (wants == RunObserver::Wants::kNothing) return;
  NodeSight sight = node();
  if (leader) sight.run = leader->Look();
  if (leader && wants == RunObserver::Wants::kRecord)
    sight.so_far = std::make_shared<const RunResult>(leader->ResultSoFar());
  observer->Take(std::move(sight));
}

}  // namespace kintsugi
