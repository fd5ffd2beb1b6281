// Launcher::Impl: node 0 of a run. The pool of this host's workers, the launchers of other nodes, signals and the
// control socket around one Controller.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/controller/controller.h"
#include "runtime/controller/node_hub.h"
#include "runtime/launcher/launcher.h"
#include "runtime/launcher/stop_signals.h"
#include "runtime/launcher/worker_pool.h"
#include "runtime/net/control_socket.h"

namespace kintsugi {

class Launcher::Impl final : public ControllerHost, public WorkerEvents, public NodeEvents {
 public:
  Impl(LauncherOptions options, std::shared_ptr<LogSink> log);
  ~Impl() override;
  Result<RunResult> Run();

  std::function<void(const RunProgress&)> listener_;

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
    std::map<Rank, Incarnation> to_spawn;
    TimePoint lost_at;  // where it is not connected
  };

  Status SetUp();
  Status CheckInjections();
  void Record();
  void OnSignal(int number, int times);
  void Poll();
  void StopIfDone();
  void EndNow(const std::string& why);
  RankView& View(Rank rank) { return views_[static_cast<size_t>(rank.value())]; }

  // ControllerHost.
  void Spawn(Rank rank, Incarnation incarnation) override;
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override;
  void OnTransition(const core::Transition& transition) override;
  void OnIncident(const core::IncidentRecord& record) override;
  void OnNotice(Rank rank, const std::string& text) override;
  void OnEnded(const core::RunEnded& ended) override;

  // WorkerEvents, of this host and of others (events.cc).
  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnExited(Rank rank, Incarnation incarnation, const std::string& cause, TimePoint at,
                std::optional<TimePoint> since) override;
  void OnSpares(int waiting) override { SetSpares(0, waiting); }
  void OnIdle() override { StopIfDone(); }
  void SetSpares(int node, int waiting);
  void MarkStep(Rank rank, const PageView& page);
  void ReportProgress();

  // Other nodes (nodes.cc).
  int NodeOf(Rank rank) const { return rank.value() / LocalRanks(); }
  int LocalRanks() const { return options_.policy.world_size / options_.nodes; }
  bool OfNode(Rank rank, int node) const {
    return rank.value() >= 0 && rank.value() < options_.policy.world_size && NodeOf(rank) == node;
  }
  void StartWhenComplete();
  void CheckNodes();
  void OnNodeJoined(int node, const wire::NodeHello& hello) override;
  void OnNodeLost(int node) override;
  void OnNodeMessage(int node, const wire::NodeMessage& message) override;
  void TellNodesOfEnd();

  // Control socket (control.cc).
  void OnRequest(const std::string& request, net::ControlSocket::Respond respond);
  std::string StatusJson() const;
  std::string IncidentsJson() const;

  LauncherOptions options_;
  std::shared_ptr<LogSink> log_;
  boost::asio::io_context io_;
  StopSignals signals_;
  boost::asio::steady_timer poll_;
  boost::asio::steady_timer leave_;
  WorkerPool pool_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<NodeHub> hub_;  // with several nodes
  std::map<int, Node> nodes_;     // the others
  std::map<int, int> spares_;     // waiting on each node
  bool started_ = false;
  std::unique_ptr<net::ControlSocket> control_;
  std::vector<RankView> views_;
  RunResult result_;
  bool ended_ = false;
  TimePoint last_progress_;
  uint64_t progress_step_ = 0;
  TimePoint progress_step_at_;
  double samples_per_second_ = 0;
  size_t fired_attributed_ = 0;
};

}  // namespace kintsugi
