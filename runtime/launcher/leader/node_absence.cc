#include "runtime/launcher/leader/node_absence.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace kintsugi {
NodeAbsence::NodeAbsence(NodeWaits waits, uint64_t term, Controller& controller, const RunAccount& account,
                         const LedNodes& nodes, HostEvents& above)
    : waits_(waits),
      term_(term),
      controller_(controller),
      account_(account),
      registry_(nodes.registry),
      orders_(nodes.orders),
      splits_(nodes.splits),
      broadcast_(nodes.broadcast),
      above_(above) {}

void NodeAbsence::TakePlacement() {
  orders_.SetPlacement(registry_.placement());
  splits_.SetVoters(registry_.Voters());
}

void NodeAbsence::OnStarted() {
  for (const auto& [block, moved] : registry_.placement().moved())
    controller_.Feed(
        core::RanksMoved{registry_.FirstOf(block), registry_.shape().local_ranks, registry_.NumberOf(moved.node)});
}

void NodeAbsence::CutOff(int number, const std::string& why) {
  registry_.At(number).cut_off = true;
  broadcast_.Say(LogLevel::kWarning, LogLine("node_cut_off", {{"node", std::to_string(registry_.NumberOf(number))},
                                                              {"address", registry_.At(number).place.address},
                                                              {"why", why},
                                                              {"then", "a spare node takes its ranks over"}}));
}

void NodeAbsence::TellSpareNodes() {
  const size_t here = registry_.Spares().size();
  if (account_.started() && !account_.ended() && std::exchange(spares_told_, here) != here)
    controller_.Feed(core::SpareNodes{static_cast<int>(here)});
}

void NodeAbsence::TellPlacesAway() {
  if (!account_.started() || account_.ended() || controller_.core().taking_over()) return;
  std::vector<Rank> away;
  const core::Crew& crew = controller_.core().crew();
  for (const NodeRegistry::Node& node : registry_.all()) {
    if ((node.here && !node.cut_off) || !registry_.HasRanks(node.number)) continue;
    const core::RankBlock ranks = registry_.RanksOf(node.number);
    for (int r = ranks.first.value(); r < ranks.first.value() + ranks.ranks; ++r)
      if (!crew.Has(Rank(r))) away.emplace_back(r);
  }
  if (std::exchange(places_told_, away) != away) controller_.Feed(core::PlacesAway{away});
}

bool NodeAbsence::OffersWorlds() const {
  const auto& members = controller_.core().members();
  return std::any_of(members.begin(), members.end(), [](const auto& member) { return !member.offer.worlds.empty(); });
}

// Some rank of it is of the run.
bool NodeAbsence::IsNeeded(int node) const {
  const core::RankBlock ranks = registry_.RanksOf(node);
  for (int r = ranks.first.value(); r < ranks.first.value() + ranks.ranks; ++r)
    if (controller_.core().crew().Has(Rank(r))) return true;
  return false;
}

void NodeAbsence::Check(TimePoint now) {
  TellSpareNodes();
  TellPlacesAway();
  CheckNodes(now);
  MoveBlocks(now);
}

void NodeAbsence::CheckNodes(TimePoint now) {
  const Duration limit = account_.started() ? waits_.to_return : waits_.to_begin;
  for (NodeRegistry::Node& node : registry_.all()) {
    const bool away = !node.here && now - node.lost_at >= limit;
    if (account_.started() && !account_.ended() && registry_.HasRanks(node.number)) DoWithout(node, now);
    if (account_.ended() && !account_.awaits_ends()) return;
    if (!registry_.HasRanks(node.number) || !(away || node.cut_off)) continue;
    if (!account_.started())
      return above_.OnNobodyCame(registry_.Name(node.number) + " did not come within " + WholeSeconds(limit));
    if (!IsNeeded(node.number)) continue;
    if (account_.awaits_ends()) {
      above_.OnGone(registry_.RanksOf(node.number), WhyNotBack(node.number));
      continue;
    }
    if (registry_.SpareHere()) continue;  // which takes its ranks over as soon as the run waits for nothing else
    SayGone(node);
    GiveUpWaiting(node);
    if (account_.ended()) return;
  }
}

// A spare node is as soon there, and has its ranks to the same bits.
void NodeAbsence::DoWithout(NodeRegistry::Node& node, TimePoint now) {
  const bool is_long = !node.here && now - node.lost_at >= std::min(waits_.shrink_after, waits_.to_return);
  const core::RankBlock ranks = registry_.RanksOf(node.number);
  if (!is_long || node.absent || registry_.SpareHere() || !controller_.core().MayDoWithout(ranks.first, ranks.ranks))
    return;
  node.absent = true;
  broadcast_.Say(LogLevel::kWarning,
                 LogLine("node_left_out", {{"node", std::to_string(registry_.NumberOf(node.number))},
                                           {"away_for", WholeSeconds(now - node.lost_at)},
                                           {"then",
                                            "the run goes on in a smaller world; once the node is back its "
                                            "ranks come to the run again"}}));
  controller_.Feed(core::NodeAbsent{ranks.first, ranks.ranks, true});
}

void NodeAbsence::OnBack(int number) {
  if (!std::exchange(registry_.At(number).absent, false) || !registry_.HasRanks(number) || account_.ended()) return;
  const core::RankBlock ranks = registry_.RanksOf(number);
  controller_.Feed(core::NodeAbsent{ranks.first, ranks.ranks, false});
}

// What waits for the node, and what it was told when its connection was dead already and nobody knew. Fed one at a
// time: the controller may ask for the next process of the rank at once. Whether the process before it lives there
// nobody knows, so that this is no end of that one.
void NodeAbsence::GiveUpWaiting(NodeRegistry::Node& node) {
  node.to_spawn.clear();
  const core::RankBlock ranks = registry_.RanksOf(node.number);
  for (int r = ranks.first.value(); r < ranks.first.value() + ranks.ranks && !account_.ended(); ++r) {
    const auto& member = controller_.core().members()[static_cast<size_t>(r)];
    if (member.life == core::ControllerCore::Life::kStarting)
      controller_.Feed(core::ProcessExited{Rank(r), member.incarnation, WhyNotBack(node.number), std::nullopt, true});
  }
}

std::string NodeAbsence::WhyNotBack(int node) const {
  if (registry_.At(node).cut_off) return "others cannot reach " + registry_.Name(node) + ", and no spare node is here";
  return registry_.Name(node) + " did not come back within " + WholeSeconds(waits_.to_return);
}

void NodeAbsence::OnLost(int number) {
  NodeRegistry::Node& node = registry_.At(number);
  KINTSUGI_CHECK(!node.here, registry_.Name(number) + " is away, and is here");
  if (account_.ended() && !account_.awaits_ends()) return;
  if (registry_.IsSpare(number))
    broadcast_.Say(LogLevel::kWarning,
                   LogLine("spare_node_lost", {{"node", std::to_string(registry_.NumberOf(number))}}));
  if (registry_.HasRanks(number) && account_.started()) SayAway(node);
}

// A rank of it that must be replaced waits for it; nothing else here can start one on that host.
void NodeAbsence::SayAway(NodeRegistry::Node& node) {
  KINTSUGI_CHECK(!node.said_away, registry_.Name(node.number) + " is lost twice");
  node.said_away = true;
  const int first = registry_.RanksOf(node.number).first.value();
  const std::string number = std::to_string(registry_.NumberOf(node.number));
  broadcast_.Say(
      LogLevel::kWarning,
      LogLine("node_lost",
              {{"node", number},
               {"address", node.place.address},
               {"ranks", std::to_string(first) + "-" + std::to_string(first + registry_.shape().local_ranks - 1)},
               {"waits", registry_.SpareHere() && !account_.ended()
                             ? WholeSeconds(waits_.spare_after) + ", then a spare node takes its ranks over"
                         : OffersWorlds() ? WholeSeconds(std::min(waits_.shrink_after, waits_.to_return)) +
                                                ", then the run goes on without it where it can"
                                          : WholeSeconds(waits_.to_return) + " for " + registry_.Name(node.number)},
               {"remedy", "where its launcher has ended, start it again there with the same command (--node-rank " +
                              number + ")"}}));
}

void NodeAbsence::SayGone(NodeRegistry::Node& node) {
  if (std::exchange(node.said_gone, true)) return;
  broadcast_.Say(
      LogLevel::kWarning,
      LogLine("node_gone",
              {{"node", std::to_string(registry_.NumberOf(node.number))},
               {"why", WhyNotBack(node.number)},
               {"then", "nothing is started on it any more; `kintsugi explain` tells what is done instead"}}));
}

void NodeAbsence::MoveBlocks(TimePoint now) {
  if (!account_.started() || account_.ended() || !registry_.SpareHere()) return;
  const std::optional<core::Takeover> due = core::NextTakeover(
      registry_.placement(), registry_.shape().nodes, registry_.Hosts(), waits_.spare_after, now, [this](int block) {
        return controller_.core().MayMove(registry_.FirstOf(block), registry_.shape().local_ranks);
      });
  if (!due) return;
  registry_.Move(term_, *due, account_.running());
  TakePlacement();
  const NodeRegistry::Node& taker = registry_.At(due->to);
  broadcast_.Say(LogLevel::kWarning,
                 LogLine("spare_node_takes_over", {{"node", std::to_string(registry_.NumberOf(due->to))},
                                                   {"address", taker.place.address},
                                                   {"ranks", registry_.RanksText(due->block)},
                                                   {"of", registry_.Name(due->from) + ", which is away"},
                                                   {"then", "that node is a spare, should it come back"}}));
  broadcast_.TellAll(wire::NodeBlocks{registry_.placement()});
  const core::RankBlock ranks = registry_.RanksOf(due->to);
  controller_.Feed(core::SparesWaiting{ranks.first, ranks.ranks, taker.spares});
  controller_.Feed(core::RanksMoved{ranks.first, ranks.ranks, registry_.NumberOf(due->to)});
}

}  // namespace kintsugi
