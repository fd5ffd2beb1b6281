#include "runtime/launcher/node_hosts.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/journal/text.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/launcher/run_observer.h"

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
      book_(ShapeOf(run), options.placement, SteadyClock::SteadyNow()),
      hub_(HubOptionsOf(run, options), controller, inbox_, log),
      bulletin_(book_, hub_, account, splits, NodeBeat(run.policy), log),
      absence_({run.policy.join_timeout, run.node_wait, run.spare_after, run.shrink_after}, options.term.number,
               controller, account, book_, hub_, splits, bulletin_, above),
      inbox_(run.job, {book_, hub_, splits, bulletin_, absence_, errands_}, controller, account, workers, above, log) {
  KINTSUGI_CHECK(run.nodes > 1, "one host is reached as several");
  controller.ServeNodes(hub_);
  if (!options.part) book_.BeginTerm(options.term.number);
  absence_.TakePlacement();
}

// A leader that takes over listens at once: nodes come while it does.
bool NodeHosts::AllHere() const { return run_.policy.takes_over || book_.AllHere(); }

void NodeHosts::Spawn(Rank rank, Incarnation incarnation) {
  const int node = book_.NodeOf(rank);
  if (book_.At(node).cut_off || !hub_.Send(node, wire::SpawnWorker{rank, incarnation}))
    book_.At(node).to_spawn[rank] = incarnation;
}

Result<core::RankBlock> NodeHosts::RanksOfNode(int number) const {
  for (const NodeBook::Node& node : book_.all()) {
    if (!(book_.HasRanks(node.number) || book_.IsSpare(node.number)) || book_.NumberOf(node.number) != number) continue;
    if (book_.HasRanks(node.number)) return book_.RanksOf(node.number);
    if (node.here) return core::RankBlock{Rank(0), 0};
  }
  return Status(StatusCode::kNotFound,
                "there is no node " + std::to_string(number) + " here: `kintsugi status` names those that are");
}

// Nothing is started there any more, so that a spare node has its ranks next.
void NodeHosts::CutOff(Rank first, const std::string& why) { absence_.CutOff(book_.NodeOf(first), why); }

// A node that is away is told when it comes back. What was to be started there is not started then.
void NodeHosts::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  std::map<Rank, Incarnation>& to_spawn = book_.At(book_.NodeOf(rank)).to_spawn;
  if (const auto waits = to_spawn.find(rank); waits != to_spawn.end() && waits->second <= incarnation)
    to_spawn.erase(waits);
  hub_.Send(book_.NodeOf(rank), wire::KillWorker{rank, incarnation, reason});
}

// The fault is armed by the launcher of the rank's own host.
void NodeHosts::Inject(const Injection& injection, const std::string& request, Respond respond) {
  const int node = book_.NodeOf(injection.rank);
  const uint64_t id = errands_.Begin(node, std::move(respond));
  if (!hub_.Send(node, wire::AskNode{id, request}))
    errands_.Refuse(id,
                    "rank " + injection.rank.ToString() + " runs on node " + std::to_string(node) + ", which is away");
}

void NodeHosts::Poll(TimePoint now) {
  hub_.Poll(now);
  bulletin_.Poll(controller_.reports().folded(), now);
}

void NodeHosts::LookAt(RunSight* sight) const {
  sight->nodes = run_.nodes;
  for (const int node : book_.Away()) sight->nodes_away.push_back(book_.NumberOf(node));
  for (const NodeBook::Node& node : book_.all())
    if (node.here || node.seen || node.number < run_.nodes + run_.controllers)
      sight->hosts.push_back({.name = book_.Label(node.number),
                              .host = node.host,
                              .address = node.place.address,
                              .version = node.version,
                              .here = node.here,
                              .spare = book_.IsSpare(node.number) && !node.cut_off});
  sight->spares_wanted = run_.spares * run_.nodes;
  for (const int node : book_.Spares()) {
    sight->spare_nodes.push_back(book_.NumberOf(node));
    sight->spares_wanted += std::max(run_.spares, book_.shape().local_ranks);
  }
  for (const NodeBook::Node& node : book_.all()) sight->spares_waiting += node.spares;
  for (RankSight& rank : sight->ranks) rank.node = book_.NumberOf(book_.NodeOf(rank.rank));
}

std::vector<std::string> NodeHosts::Names() const {
  std::vector<std::string> names;
  for (const NodeBook::Node& node : book_.all()) {
    const std::optional<int> block = book_.BlockOf(node.number);
    if (!block && !(node.seen && book_.IsSpare(node.number))) continue;
    names.push_back(book_.Name(node.number) + ", " + node.place.address + ", " +
                    (block ? "ranks " + book_.RanksText(*block) : "a spare"));
  }
  return names;
}

}  // namespace kintsugi
