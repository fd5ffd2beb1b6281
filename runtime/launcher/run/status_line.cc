#include "runtime/launcher/run/status_line.h"

#include <nlohmann/json.hpp>

#include "runtime/launcher/run/control_words.h"

namespace kintsugi {
namespace {

using nlohmann::json;

json Seconds(Duration duration) { return ToMilliseconds(duration) / 1000; }

json SavesJson(const SaveHistory& saves, TimePoint now) {
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

json HostsJson(const std::vector<NodePresence>& hosts) {
  json all = json::array();
  for (const NodePresence& node : hosts)
    all.push_back({{"node", node.name},
                   {"host", node.host},
                   {"address", node.address},
                   {"version", node.version},
                   {"here", node.here},
                   {"spare", node.spare}});
  return all;
}

json HangJson(const HangStatus& hang, TimePoint now) {
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

json RankJson(const RankStatus& seen, bool several_nodes) {
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

json WorldChangesJson(const RunStatus& status) {
  const auto list = [](const std::vector<Rank>& ranks) {
    json all = json::array();
    for (Rank rank : ranks) all.push_back(rank.value());
    return all;
  };
  json changes = json::array();
  for (const WorldChange& change : status.worlds)
    changes.push_back({{"ago_s", ToMilliseconds(status.at - change.at) / 1000},
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

std::string StatusLine(const RunStatus& status) {
  json ranks = json::array();
  for (const RankStatus& rank : status.ranks) ranks.push_back(RankJson(rank, status.nodes > 1));
  return AnswerLine(
      {{"ok", true},
       {"job", status.job},
       {"address", status.address},
       {"phase", core::PhaseName(status.phase)},
       {"term", status.term.number},
       {"generation", status.generation.value()},
       {"step", status.step.value()},
       {"loss", status.loss ? json(*status.loss) : json()},
       {"world", {{"ranks", status.world_size}, {"places", status.places}, {"wanted", status.ranks_wanted}}},
       {"world_changes", WorldChangesJson(status)},
       {"nodes", status.nodes},
       {"incidents", status.incidents},
       {"pause",
        {{"asked", status.pause_asked}, {"at_step", status.paused_at ? json(status.paused_at->value()) : json()}}},
       {"dropped_messages", status.dropped_messages},
       {"refused_frames", status.refused_frames},
       {"refused_reports", status.refused_reports},
       {"connections", ConnectionsJson(status.connections)},
       {"saves", SavesJson(status.saves, status.at)},
       {"time", status.times_known ? TimeJson(status.time) : json()},
       {"hosts", HostsJson(status.hosts)},
       {"nodes_away", status.nodes_away},
       {"spare_nodes", status.spare_nodes},
       {"spares", {{"wanted", status.spares_wanted}, {"waiting", status.spares_waiting}}},
       {"hang", status.hang ? HangJson(*status.hang, status.at) : json()},
       {"ranks", std::move(ranks)}});
}

}  // namespace kintsugi
