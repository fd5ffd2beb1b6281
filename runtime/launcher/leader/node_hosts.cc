#include "runtime/launcher/leader/node_hosts.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/journal/text.h"
#include "runtime/launcher/leader/node_parts.h"
#include "runtime/launcher/run/run_observer.h"

namespace kintsugi {
namespace {

// What a launcher must know that takes over; where the run stands it learns from the ranks.
std::string PolicyOfTheRun(core::Policy policy) {
  policy.takes_over = policy.began = policy.part = false;
  policy.checkpoints.clear();
  policy.tie_rule = core::TieRule::kLowestRank;
  return journal::WriteFields(policy);
}

NodeHubOptions HubOptionsOf(const LauncherOptions& run, const NodeHostsOptions& options) {
  return {.job = run.job,
          .term = options.term,
          .nodes = run.nodes,
          .local_ranks = ShapeOf(run).local_ranks,
          .master_address = options.master_address,
          .master_port = options.master_port,
          .beat = NodeBeat(run.policy),
          .policy = PolicyOfTheRun(run.policy),
          .run = options.run_id,
          .page = run.observer ? run.observer->page() : "",
          .version = run.version,
          .alike = run.alike,
          .own = run.own,
          .witness = !run.witness.empty(),
          .controllers = run.controllers,
          .silence = run.policy.silence};
}

}  // namespace

NodeHosts::NodeHosts(const LauncherOptions& run, const NodeHostsOptions& options, Controller& controller,
                     RunAccount& account, WorkerEvents& workers, EvenSplits& splits, HostEvents& above,
                     std::shared_ptr<LogSink> log)
    : run_(run),
      controller_(controller),
      account_(account),
      registry_(ShapeOf(run), options.placement, SteadyClock::SteadyNow()),
      hub_(HubOptionsOf(run, options), controller, inbox_, log),
      broadcast_(registry_, hub_, account, splits, NodeBeat(run.policy), log),
      absence_({run.policy.join_timeout, run.node_wait, run.spare_after, run.shrink_after}, options.term.number,
               controller, account, {registry_, hub_, splits, broadcast_}, above),
      inbox_(run.job, {{registry_, hub_, splits, broadcast_}, absence_, forwarded_}, controller, account, workers,
             above, log) {
  KINTSUGI_CHECK(run.nodes > 1, "one host is reached as several");
  controller.ServeNodes(hub_);
  if (!options.part) registry_.BeginTerm(options.term.number);
  absence_.TakePlacement();
}

// A leader that takes over listens at once: nodes come while it does.
bool NodeHosts::AllHere() const { return run_.policy.takes_over || registry_.AllHere(); }

void NodeHosts::Spawn(Rank rank, Incarnation incarnation) {
  const int node = registry_.NodeOf(rank);
  if (registry_.At(node).cut_off || !hub_.Send(node, wire::SpawnWorker{rank, incarnation}))
    registry_.At(node).to_spawn[rank] = incarnation;
}

Result<core::RankBlock> NodeHosts::RanksOfNode(int number) const {
  for (const NodeRegistry::Node& node : registry_.all()) {
    if (!(registry_.HasRanks(node.number) || registry_.IsSpare(node.number)) ||
        registry_.NumberOf(node.number) != number)
      continue;
    if (registry_.HasRanks(node.number)) return registry_.RanksOf(node.number);
    if (node.here) return core::RankBlock{Rank(0), 0};
  }
  return Status(StatusCode::kNotFound,
                "there is no node " + std::to_string(number) + " here: `kintsugi status` names those that are");
}

// Nothing is started there any more, so that a spare node has its ranks next.
void NodeHosts::CutOff(Rank first, const std::string& why) { absence_.CutOff(registry_.NodeOf(first), why); }

// A node that is away is told when it comes back. What was to be started there is not started then.
void NodeHosts::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  std::map<Rank, Incarnation>& to_spawn = registry_.At(registry_.NodeOf(rank)).to_spawn;
  if (const auto waits = to_spawn.find(rank); waits != to_spawn.end() && waits->second <= incarnation)
    to_spawn.erase(waits);
  hub_.Send(registry_.NodeOf(rank), wire::KillWorker{rank, incarnation, reason});
}

// The fault is armed by the launcher of the rank's own host.
void NodeHosts::Inject(const Injection& injection, const std::string& request, Respond respond) {
  const int node = registry_.NodeOf(injection.rank);
  const uint64_t id = forwarded_.Begin(node, std::move(respond));
  if (!hub_.Send(node, wire::AskNode{id, request}))
    forwarded_.Refuse(
        id, "rank " + injection.rank.ToString() + " runs on node " + std::to_string(node) + ", which is away");
}

void NodeHosts::Poll(TimePoint now) {
  hub_.Poll(now);
  broadcast_.Poll(controller_.reports().folded(), now);
}

void NodeHosts::LookAt(RunStatus* status) const {
  status->nodes = run_.nodes;
  for (const int node : registry_.Away()) status->nodes_away.push_back(registry_.NumberOf(node));
  for (const NodeRegistry::Node& node : registry_.all())
    if (node.here || node.seen || node.number < run_.nodes + run_.controllers)
      status->hosts.push_back({.name = registry_.Label(node.number),
                               .host = node.host,
                               .address = node.place.address,
                               .version = node.version,
                               .here = node.here,
                               .spare = registry_.IsSpare(node.number) && !node.cut_off});
  status->spares_wanted = run_.spares * run_.nodes;
  for (const int node : registry_.Spares()) {
    status->spare_nodes.push_back(registry_.NumberOf(node));
    status->spares_wanted += std::max(run_.spares, registry_.shape().local_ranks);
  }
  for (const NodeRegistry::Node& node : registry_.all()) status->spares_waiting += node.spares;
  for (RankStatus& rank : status->ranks) rank.node = registry_.NumberOf(registry_.NodeOf(rank.rank));
}

std::vector<std::string> NodeHosts::Names() const {
  std::vector<std::string> names;
  for (const NodeRegistry::Node& node : registry_.all()) {
    const std::optional<int> block = registry_.BlockOf(node.number);
    if (!block && !(node.seen && registry_.IsSpare(node.number))) continue;
    names.push_back(registry_.Name(node.number) + ", " + node.place.address + ", " +
                    (block ? "ranks " + registry_.RanksText(*block) : "a spare"));
  }
  return names;
}

}  // namespace kintsugi
