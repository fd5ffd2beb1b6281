#include "runtime/launcher/status_line.h"

#include <nlohmann/json.hpp>

#include "runtime/launcher/control_words.h"

namespace kintsugi {
namespace {

using nlohmann::json;

json Seconds(Duration duration) { return ToMilliseconds(duration) / 1000; }

json SavesJson(const SaveBook& saves, TimePoint now) {
  json newest, failure;
  if (saves.newest)
    newest = {{"step", saves.newest->checkpoint.step.value()},
              {"directory", saves.newest->checkpoint.directory},
              {"age_s", Seconds(now - saves.newest->known_at)}};
  if (saves.last_failure)
    failure = {{"step", saves.last_failure->settled.step.value()},
               {"rank", saves.last_failure->settled.rank.value()},
               {"why", saves.last_failure->settled.text},
               {"age_s", Seconds(now - saves.last_failure->at)}};
  return {{"made", saves.made},
          {"failed", saves.failed},
          {"newest", newest},
          {"last_failure", failure},
          {"remark", saves.remark}};
}

json TimeJson(const TimeAccount& time) {
  return {{"total_s", Seconds(time.total)},     {"starting_s", Seconds(time.starting)},
          {"down_s", Seconds(time.down)},       {"redone_s", Seconds(time.redone)},
          {"saving_s", Seconds(time.saving)},   {"paused_s", Seconds(time.paused)},
          {"useful_s", Seconds(time.useful())}, {"goodput", time.goodput()}};
}

json ConnectionsJson(const net::TransportCounters& counters) {
  return {{"accepted", counters.accepted},
          {"authenticated", counters.authenticated},
          {"refused",
           {{"magic", counters.refused_magic},
            {"version", counters.refused_version},
            {"job", counters.refused_job},
            {"tls", counters.refused_tls},
            {"secret", counters.refused_secret},
            {"frame", counters.refused_frame},
            {"timeout", counters.refused_timeout},
            {"limit", counters.refused_limit},
            {"gone", counters.refused_gone}}},
          {"closed",
           {{"local", counters.closed_local},
            {"peer", counters.closed_peer},
            {"frame", counters.closed_frame},
            {"queue", counters.closed_queue}}}};
}

json HostsJson(const std::vector<NodeSeen>& hosts) {
  json all = json::array();
  for (const NodeSeen& node : hosts)
    all.push_back({{"node", node.name},
                   {"host", node.host},
                   {"address", node.address},
                   {"version", node.version},
                   {"here", node.here},
                   {"spare", node.spare}});
  return all;
}

json HangJson(const HangSeen& hang, TimePoint now) {
  const auto numbers = [](const std::vector<Rank>& ranks) {
    json all = json::array();
    for (Rank rank : ranks) all.push_back(rank.value());
    return all;
  };
  json stacks = json::array();
  for (const core::FoldedStack& stack : hang.blame.stacks)
    stacks.push_back({{"ranks", numbers(stack.ranks)}, {"stack", stack.text}});
  return {{"why", core::BlameKindName(hang.blame.kind)},
          {"ranks", numbers(hang.blame.ranks)},
          {"text", hang.blame.text},
          {"stacks", std::move(stacks)},
          {"age_s", Seconds(now - hang.at)}};
}

json RankJson(const RankSight& seen, bool several_nodes) {
  json rank{{"rank", seen.rank.value()},
            {"incarnation", seen.incarnation.value()},
            {"life", LifeName(seen.life)},
            {"connected", seen.connected},
            {"pid", seen.pid},
            {"step", seen.step},
            {"respawns", seen.respawns},
            {"late_ms", seen.late ? json(ToMilliseconds(*seen.late)) : json()}};
  if (several_nodes) rank["node"] = seen.node;
  if (seen.gate) {
    rank["gate"] = {{"state", core::GateStateName(seen.gate->state)},
                    {"step", seen.gate->step.value()},
                    {"locked", seen.gate->locked}};
    rank["phase"] = seen.phase ? json(TrainPhaseName(*seen.phase)) : json(nullptr);
  }
  return rank;
}

json WorldChangesJson(const RunSight& sight) {
  const auto list = [](const std::vector<Rank>& ranks) {
    json all = json::array();
    for (Rank rank : ranks) all.push_back(rank.value());
    return all;
  };
  json changes = json::array();
  for (const WorldChange& change : sight.worlds)
    changes.push_back({{"ago_s", ToMilliseconds(sight.at - change.at) / 1000},
                       {"step", change.step.value()},
                       {"ranks", change.ranks},
                       {"left", list(change.left)},
                       {"came", list(change.came)},
                       {"incident", change.incident == 0 ? json() : json(change.incident)}});
  return changes;
}

}  // namespace

std::string_view LifeName(core::ControllerCore::Life life) {
  constexpr std::string_view kNames[] = {"absent", "starting", "ready", "dead"};
  return kNames[static_cast<size_t>(life)];
}

std::string StatusLine(const RunSight& sight) {
  json ranks = json::array();
  for (const RankSight& rank : sight.ranks) ranks.push_back(RankJson(rank, sight.nodes > 1));
  return AnswerLine(
      {{"ok", true},
       {"job", sight.job},
       {"address", sight.address},
       {"phase", core::PhaseName(sight.phase)},
       {"term", sight.term.number},
       {"generation", sight.generation.value()},
       {"step", sight.step.value()},
       {"loss", sight.loss ? json(*sight.loss) : json()},
       {"world", {{"ranks", sight.world_size}, {"places", sight.places}, {"wanted", sight.ranks_wanted}}},
       {"world_changes", WorldChangesJson(sight)},
       {"nodes", sight.nodes},
       {"incidents", sight.incidents},
       {"pause",
        {{"asked", sight.pause_asked}, {"at_step", sight.paused_at ? json(sight.paused_at->value()) : json()}}},
       {"dropped_messages", sight.dropped_messages},
       {"refused_frames", sight.refused_frames},
       {"refused_reports", sight.refused_reports},
       {"connections", ConnectionsJson(sight.connections)},
       {"saves", SavesJson(sight.saves, sight.at)},
       {"time", sight.times_known ? TimeJson(sight.time) : json()},
       {"hosts", HostsJson(sight.hosts)},
       {"nodes_away", sight.nodes_away},
       {"spare_nodes", sight.spare_nodes},
       {"spares", {{"wanted", sight.spares_wanted}, {"waiting", sight.spares_waiting}}},
       {"hang", sight.hang ? HangJson(*sight.hang, sight.at) : json()},
       {"ranks", std::move(ranks)}});
}

}  // namespace kintsugi
