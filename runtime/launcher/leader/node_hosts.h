// NodeHosts: the processes of a run that has several hosts, as its leader reaches them: every host's launcher has a
// connection here, that of the leader's own host too. All nodes are alike, and the leader may be anywhere.
//
// Threads: one, that of the leader.
// Ownership: of the hub and of all that is known of nodes; controller, account, splits and those above outlive it.
// Errors: a process that cannot be started because its node is away is told as never begun once the wait is over.
// Invariants: what is wanted of a node that is away waits until it is back, or is told then what is no longer wanted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/controller/node_hub.h"
#include "runtime/launcher/leader/even_splits.h"
#include "runtime/launcher/leader/forwarded_requests.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/node_absence.h"
#include "runtime/launcher/leader/node_broadcast.h"
#include "runtime/launcher/leader/node_inbox.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/launcher/workers/worker_events.h"

namespace kintsugi {

struct NodeHostsOptions {
  Term term;
  bool part = false;  // elected by no majority: it takes nothing over by itself
  std::string master_address;
  uint16_t master_port = 0;
  std::string run_id;
  core::Placement placement;  // as far as is known
};

class NodeHosts final : public Hosts {
 public:
  NodeHosts(const LauncherOptions& run, const NodeHostsOptions& options, Controller& controller, RunAccount& account,
            WorkerEvents& workers, EvenSplits& splits, HostEvents& above, std::shared_ptr<LogSink> log);

  bool AllHere() const override;
  void OnStarting() override { broadcast_.TellPlaces(); }
  void OnStarted() override { absence_.OnStarted(); }
  void Spawn(Rank rank, Incarnation incarnation) override;
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override;
  void CutOff(Rank first, const std::string& why) override;
  void Inject(const Injection& injection, const std::string& request, Respond respond) override;
  Result<core::RankBlock> RanksOfNode(int number) const override;
  bool SpareHere() const override { return registry_.SpareHere(); }
  void Say(LogLevel level, const std::string& line) override { broadcast_.Say(level, line); }
  void Check(TimePoint now) override { absence_.Check(now); }
  void Poll(TimePoint now) override;
  void PulseAll() override { broadcast_.PulseAll(SteadyClock::SteadyNow()); }
  void Leave(const wire::NodeEnd& end) override { broadcast_.TellAll(end); }
  void EndNow() override {}
  bool left() const override { return !hub_.any_connected(); }
  void LookAt(RunStatus* status) const override;
  std::vector<std::string> Names() const override;
  std::vector<int> Away() const override { return registry_.Away(); }

 private:
  const LauncherOptions& run_;
  Controller& controller_;
  const RunAccount& account_;
  NodeRegistry registry_;
  NodeHub hub_;
  NodeBroadcast broadcast_;
  NodeAbsence absence_;
  ForwardedRequests forwarded_;
  NodeInbox inbox_;
};

}  // namespace kintsugi
