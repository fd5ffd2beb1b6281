// Leader: the controller's side of a run, wherever the run's processes are. It builds one Controller and the parts
// around it (README.md draws them), gives them their turns, and passes on what it is told.
//
// With one host the pool of its workers is at hand. With several, every host's launcher has a connection here.
// Threads: one, which runs the io_context.
// Ownership: of the controller and of all parts.
// Errors: Validate: options that no run can have. Listen: what keeps the controller from starting.
// Invariants: a caller that waits for an answer when a leader goes is told so.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/controller/controller.h"
#include "runtime/core/placement.h"
#include "runtime/launcher/leader/control_handler.h"
#include "runtime/launcher/leader/controller_duties.h"
#include "runtime/launcher/leader/ending.h"
#include "runtime/launcher/leader/even_splits.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/operator_requests.h"
#include "runtime/launcher/leader/worker_event_handler.h"
#include "runtime/launcher/run/generation_log.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/progress_meter.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/launcher/run/run_history.h"
#include "runtime/launcher/run/run_observer.h"
#include "runtime/launcher/run/run_result.h"
#include "runtime/launcher/workers/worker_pool.h"
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
  wire::RunSoFar before;      // with one, too: what its leaders had counted
  KeptHistory history;        // with one, too: what it was under them
  core::Placement placement;  // with one, too: where the ranks live, as far as is known
  std::function<void()> on_ask_witness;
};

class Leader final : private HostEvents {
 public:
  // What keeps these options from being a run's.
  static Status Validate(const LauncherOptions& run);
  // `local`: with one host its workers, which may be built later; else null. `on_done`: the run is over and everybody
  // has left, or the leader was told to end at once. REQUIRES: options.run is valid.
  Leader(boost::asio::io_context& io, LeaderOptions options, std::shared_ptr<const net::Secret> secret,
         WorkerPool* local, std::shared_ptr<GenerationLog> log, std::function<void()> on_done);
  ~Leader() override;

  Status Listen();
  uint16_t port() const { return controller_.port(); }
  Term term() const { return options_.term; }
  void OnProgress(std::function<void(const RunProgress&)> listener) { meter_.Listen(std::move(listener)); }
  // The part that watches the workers of this host tells this one.
  WorkerEvents& workers() { return workers_; }
  // Begins the run, or takes it over: at once with one host, else when every node is there.
  void Start();
  // Now and then: progress, nodes that do not come back, pulses.
  void Poll();
  // Save and leave, within the grace period.
  void Stop() override { ending_.Stop(); }
  void EndNow(const std::string& why) { ending_.EndNow(why); }
  // With a witness: what this node goes by at even splits; until when it holds the lease; what all nodes should go by.
  void TakeTieRule(core::TieRule rule) { splits_.Take(rule); }
  void TakeWord(TimePoint until) { splits_.TakeWord(until); }
  void WantTieRule(std::optional<core::TieRule> wanted);
  // The run has ended, and not for want of a majority.
  bool ended_for_all() const;
  std::vector<int> NodesAway() const { return hosts_->Away(); }
  RunResult TakeResult();
  // What can be seen of the run now; and all that its result would hold, but for the timings of single steps.
  RunStatus Look() const { return control_.Look(); }
  RunResult ResultSoFar();
  void OnRequest(const std::string& request, net::ControlSocket::Respond respond) override;

 private:
  void OnCame() override;
  void OnLeft() override { ending_.OnLeft(); }
  void OnGone(core::RankBlock ranks, const std::string& why) override;
  void OnNobodyCame(const std::string& why) override { ending_.NeverBegin(why); }
  bool AllAtSavePoint() const;
  void RecordJournal();
  void TellNotStruck(const RunResult& result);
  // What neither the account nor anybody else knows by itself.
  void Complete(RunResult* result);
  std::unique_ptr<Hosts> MakeHosts(WorkerPool* local);

  // Each knows only those before it; what goes the other way are interfaces.
  const LeaderOptions options_;
  std::shared_ptr<GenerationLog> log_;
  RunAccount account_;
  Controller controller_;
  OperatorRequests operators_;
  WorkerEventHandler workers_;
  EvenSplits splits_;
  const std::unique_ptr<Hosts> hosts_;
  ProgressMeter meter_;
  Ending ending_;
  ControllerDuties duties_;
  ControlHandler control_;
  TimePoint last_progress_;
};

// For the launchers' polls: carries out what was ordered, shows what is wanted. `leader`: null where another node
// leads.
template <typename Node, typename Carry>
void Attend(RunObserver* observer, Leader* leader, const Node& node, const Carry& carry_out) {
  if (observer)
    for (RunObserver::Order& order : observer->TakeOrders()) carry_out(order.request, std::move(order.respond));
  const RunObserver::Wants wants = observer ? observer->wants() : RunObserver::Wants::kNothing;
  if (wants == RunObserver::Wants::kNothing) return;
  NodeStatus status = node();
  if (leader) status.run = leader->Look();
  if (leader && wants == RunObserver::Wants::kRecord)
    status.so_far = std::make_shared<const RunResult>(leader->ResultSoFar());
  observer->Take(std::move(status));
}

}  // namespace kintsugi
