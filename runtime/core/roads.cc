#include "runtime/core/roads.h"

#include <algorithm>

namespace kintsugi::core {

int Roads::HostOf(Rank rank) const {
  return board_.policy.node_ranks > 0 ? rank.value() / board_.policy.node_ranks : rank.value();
}

void Roads::Take(Rank rank, const std::vector<UnreachedPeer>& peers) {
  if (const uint64_t id = board_.incident.id(); std::exchange(incident_, id) != id)
    roads_.clear(), told_.clear(), named_.clear();
  if (const int attempt = board_.incident.attempt(); std::exchange(attempt_, attempt) != attempt) named_.clear();
  for (const UnreachedPeer& peer : peers)
    if (board_.members.Has(peer.rank) && peer.rank != rank) named_.push_back({rank, peer});
}

void Roads::Conclude() {
  if (board_.incident.id() != incident_ || board_.incident.attempt() != attempt_) return;
  for (const Named& named : std::exchange(named_, {})) {
    const Rank to = named.to.rank;
    Road& road = roads_[std::minmax(HostOf(named.from), HostOf(to))];
    if (road.attempts.empty()) road.first = board_.now();
    road.attempts.insert(attempt_);
    road.newest = named.to;
    road.from = named.from;
    if (told_.insert({named.from, to}).second)
      board_.Act(RoadClosed{named.from, to, named.to.port, board_.At(named.from).host, board_.At(to).host});
  }
}

bool Roads::IsClosed(const Road& road) const {
  return road.attempts.size() >= kAttemptsMax && board_.now() - road.first >= board_.policy.silence;
}

std::optional<Roads::CutOff> Roads::FindCutOff() const {
  if (!board_.incident.open() || board_.incident.id() != incident_) return std::nullopt;
  std::map<int, int> closed;  // by host: how many others it cannot reach
  for (const auto& [pair, road] : roads_) {
    if (!IsClosed(road)) continue;
    ++closed[pair.first];
    if (pair.second != pair.first) ++closed[pair.second];
  }
  if (closed.empty()) return std::nullopt;
  int host = closed.begin()->first;
  for (const auto& [other, count] : closed)
    if (count >= closed[host]) host = other;
  CutOff cut;
  for (Rank rank : board_.members.ranks())
    if (HostOf(rank) == host) cut.ranks.push_back(rank);
  for (const auto& [pair, road] : roads_)
    if (cut.text.empty() && IsClosed(road) && (pair.first == host || pair.second == host))
      cut.text = "rank " + road.from.ToString() + " could not reach rank " + road.newest.rank.ToString() +
                 (road.newest.port > 0 ? " at port " + std::to_string(road.newest.port) : "") + " in " +
                 std::to_string(road.attempts.size()) + " attempts";
  return cut;
}

}  // namespace kintsugi::core
