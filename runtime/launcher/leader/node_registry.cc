#include "runtime/launcher/leader/node_registry.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {

NodeRegistry::NodeRegistry(NodeShape shape, core::Placement placement, TimePoint now)
    : shape_(shape), placement_(std::move(placement)) {
  KINTSUGI_CHECK(shape_.nodes > 0 && shape_.controllers >= 0 && shape_.local_ranks > 0, "a run without ranks");
  for (int node = 0; node < shape_.nodes + shape_.controllers + core::kSpareNodesMax; ++node)
    nodes_.push_back({.number = node, .lost_at = now});
}

NodeRegistry::Node& NodeRegistry::At(int node) {
  KINTSUGI_CHECK(IsIndex(node), "there is no place " + std::to_string(node) + " among the launchers");
  return nodes_[static_cast<size_t>(node)];
}

const NodeRegistry::Node& NodeRegistry::At(int node) const { return const_cast<NodeRegistry*>(this)->At(node); }

bool NodeRegistry::OfNode(Rank rank, int node) const {
  return rank.value() >= 0 && rank.value() < shape_.nodes * shape_.local_ranks && NodeOf(rank) == node;
}

bool NodeRegistry::IsSpare(int node) const {
  return !HasRanks(node) && (node < shape_.nodes || node >= shape_.nodes + shape_.controllers);
}

core::RankBlock NodeRegistry::RanksOf(int node) const {
  const std::optional<int> block = BlockOf(node);
  KINTSUGI_CHECK(block.has_value(), Name(node) + " has no ranks");
  return {FirstOf(*block), shape_.local_ranks};
}

void NodeRegistry::Move(uint64_t term, const core::Takeover& takeover, Generation running) {
  KINTSUGI_CHECK(BlockOf(takeover.from) == takeover.block, Name(takeover.from) + " loses ranks that it has not");
  KINTSUGI_CHECK(IsSpare(takeover.to) && At(takeover.to).here, Name(takeover.to) + " takes ranks, and is no spare");
  placement_.Move(term, takeover.block, takeover.to, running);
  At(takeover.from).to_spawn.clear();
}

std::set<int> NodeRegistry::Voters() const {
  std::set<int> voters;
  for (int block = 0; block < shape_.nodes; ++block) voters.insert(placement_.NodeOf(block));
  for (int controller = 0; controller < shape_.controllers; ++controller) voters.insert(shape_.nodes + controller);
  return voters;
}

NodeRegistry::Arrival NodeRegistry::OnJoined(int number, const wire::NodeHello& hello, TimePoint now) {
  Node& node = At(number);
  KINTSUGI_CHECK(!node.here, Name(number) + " comes twice");
  node.here = true;
  Arrival arrival;
  if (std::exchange(node.said_away, false)) arrival.away = now - node.lost_at;
  arrival.moved = node.place.address != hello.address || node.place.port != hello.port;
  node.said_gone = false;
  node.seen = true;
  node.place = {number, hello.address, hello.port};
  if (std::exchange(node.launcher, hello.launcher) != hello.launcher)
    node.cut_off = false;  // another one has its own chance
  node.host = hello.host;
  node.version = hello.version;
  node.knows_totals = node.knows_story = false;
  return arrival;
}

void NodeRegistry::OnLost(int number, TimePoint now) {
  Node& node = At(number);
  KINTSUGI_CHECK(node.here, Name(number) + " is lost, and was not here");
  node.here = false;
  node.lost_at = now;
}

bool NodeRegistry::AllHere() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [this](const Node& node) { return node.here || !HasRanks(node.number); });
}

std::vector<int> NodeRegistry::Spares() const {
  std::vector<int> spares;
  for (const Node& node : nodes_)
    if (node.here && !node.cut_off && IsSpare(node.number)) spares.push_back(node.number);
  return spares;
}

std::vector<int> NodeRegistry::Away() const {
  std::vector<int> away;
  for (const Node& node : nodes_)
    if (!node.here && (node.seen || node.number < shape_.nodes + shape_.controllers)) away.push_back(node.number);
  return away;
}

std::vector<core::Host> NodeRegistry::Hosts() const {
  std::vector<core::Host> hosts;
  for (const Node& node : nodes_)
    if (HasRanks(node.number) || IsSpare(node.number))
      hosts.push_back({node.number, node.here && !node.cut_off, node.cut_off ? TimePoint() : node.lost_at});
  return hosts;
}

std::string NodeRegistry::Label(int node) const {
  const int controller = node - shape_.nodes;
  return controller >= 0 && controller < shape_.controllers ? "controller-" + std::to_string(controller)
                                                            : std::to_string(NumberOf(node));
}

std::string NodeRegistry::RanksText(int block) const {
  const int first = FirstOf(block).value();
  return std::to_string(first) + " to " + std::to_string(first + shape_.local_ranks - 1);
}

}  // namespace kintsugi
