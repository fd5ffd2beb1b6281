#include "tools/report/record_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/report/text.h"

namespace kintsugi {
namespace {

using Json = nlohmann::ordered_json;

Json NumberJson(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json NumberJson(const std::optional<double>& value) { return value ? NumberJson(*value) : Json(nullptr); }

template <typename Range, typename Convert>
Json List(const Range& range, Convert convert) {
  Json list = Json::array();
  for (const auto& element : range) list.push_back(convert(element));
  return list;
}

Json TimeJson(const RunRecord& record) {
  if (!record.time) return nullptr;
  const auto seconds = [](int64_t ns) { return NumberJson(static_cast<double>(ns) / 1e9); };
  const TimeSpent& time = *record.time;
  return {{"total_s", seconds(record.end_ns)},
          {"starting_s", seconds(time.starting_ns)},
          {"down_s", seconds(time.down_ns)},
          {"redone_s", seconds(time.redone_ns)},
          {"saving_s", seconds(time.saving_ns)},
          {"paused_s", seconds(time.paused_ns)},
          {"useful_s", NumberJson(record.Goodput().value_or(0) * static_cast<double>(record.end_ns) / 1e9)}};
}

Json SavesJson(const SaveSummary& saves) {
  return {{"made", saves.made},
          {"failed", saves.failed},
          {"newest_step", saves.newest ? Json(saves.newest->value()) : Json(nullptr)},
          {"last_failure", ToUtf8(saves.last_failure)}};
}

Json InexactJson(const InexactNote& note) { return {{"rank", note.rank.value()}, {"text", ToUtf8(note.text)}}; }

Json PhaseJson(const ControllerPhaseSpan& span) {
  return {{"phase", ToUtf8(span.phase)},
          {"attempt", span.attempt},
          {"generation", span.generation.value()},
          {"start_ns", span.start_ns},
          {"end_ns", span.end_ns}};
}

Json RankPhaseJson(const RankPhaseSpan& span) {
  return {
      {"rank", span.rank.value()}, {"phase", ToUtf8(span.phase)}, {"start_ns", span.start_ns}, {"end_ns", span.end_ns}};
}

Json IncidentJson(const ReportedIncident& incident) {
  Json json = ToJson(static_cast<const IncidentSummary&>(incident));
  json["controller_id"] = incident.term.controller_id;
  json["fault_ns"] = incident.fault_ns;
  json["struck_step"] = incident.struck_step ? Json(incident.struck_step->value()) : Json(nullptr);
  json["struck_phase"] = ToUtf8(incident.struck_phase);
  json["phases"] = List(incident.phases, PhaseJson);
  json["rank_phases"] = List(incident.rank_phases, RankPhaseJson);
  return json;
}

Json StepJson(const StepSpan& span) {
  return {{"rank", span.rank.value()},
          {"step", span.step.value()},
          {"last_step", span.last_step.value()},
          {"start_ns", span.start_ns},
          {"end_ns", span.end_ns}};
}

Json RanksJson(const std::vector<Rank>& ranks) {
  return List(ranks, [](Rank rank) { return Json(rank.value()); });
}

Json WorldJson(const WorldSpan& world) {
  return {{"start_ns", world.start_ns},    {"step", world.step.value()},
          {"ranks", world.ranks},          {"left", RanksJson(world.left)},
          {"came", RanksJson(world.came)}, {"incident", world.incident == 0 ? Json(nullptr) : Json(world.incident)}};
}

Json LifetimeJson(const RankLifetime& life) {
  return {{"rank", life.rank.value()},
          {"incarnation", life.incarnation.value()},
          {"start_ns", life.start_ns},
          {"end_ns", life.end_ns ? Json(*life.end_ns) : Json(nullptr)},
          {"cause", ToUtf8(life.cause)}};
}

Json HostJson(const HostInfo& host) {
  return {{"hostname", ToUtf8(host.hostname)},
          {"system", ToUtf8(host.system)},
          {"processor", ToUtf8(host.processor)},
          {"cores", host.cores},
          {"memory_bytes", host.memory_bytes}};
}

// What summary and record share, with the incidents written by `incident`.
template <typename Incident>
Json RunJson(const RunRecord& record, int schema, Incident incident) {
  Json run{{"schema", schema},
           {"world_size", record.world_size},
           {"steps", record.steps},
           {"final_loss", NumberJson(record.final_loss)},
           {"final_digest", ToUtf8(record.final_digest)},
           {"losses", List(record.losses, [](double loss) { return NumberJson(loss); })},
           {"samples_consumed", record.samples_consumed},
           {"samples_digest", ToUtf8(record.samples_digest)},
           {"exit", record.exit},
           {"reason", ToUtf8(record.reason)},
           {"goodput", NumberJson(record.Goodput())},
           {"time", TimeJson(record)},
           {"saves", SavesJson(record.saves)},
           {"inexact", List(record.inexact, InexactJson)},
           {"inexact_count", record.inexact_count},
           {"not_struck", List(record.not_struck, [](const std::string& spec) { return Json(ToUtf8(spec)); })},
           {"worlds", List(record.worlds, WorldJson)},
           {"incidents", List(record.incidents, incident)}};
  if (record.incidents_before > 0) run["incidents_before"] = record.incidents_before;
  if (record.losses_every > 1) run["losses_every"] = record.losses_every;
  return run;
}

}  // namespace

Json SummaryJson(const RunRecord& record) {
  return RunJson(record, kSummarySchema, [](const IncidentSummary& incident) { return ToJson(incident); });
}

Json RecordJson(const RunRecord& record) {
  Json json = RunJson(record, kRecordSchema, IncidentJson);
  json["kind"] = "kintsugi-run-record";
  json["resumed_from"] = record.resumed_from;
  json["host"] = HostJson(record.host);
  json["started_at"] = ToUtf8(record.started_at);
  json["started_unix_ms"] = record.started_unix_ms;
  json["utc_offset_minutes"] = record.utc_offset_minutes;
  if (record.time)
    json["time_ns"] = {{"starting", record.time->starting_ns},
                       {"down", record.time->down_ns},
                       {"redone", record.time->redone_ns},
                       {"saving", record.time->saving_ns},
                       {"paused", record.time->paused_ns}};
  json["hosts"] = List(record.hosts, [](const std::string& host) { return Json(ToUtf8(host)); });
  json["struck"] = List(record.struck, [](const std::string& spec) { return Json(ToUtf8(spec)); });
  json["launcher_line"] = List(record.launcher_line, [](const std::string& word) { return Json(ToUtf8(word)); });
  json["command_line"] = List(record.command_line, [](const std::string& word) { return Json(ToUtf8(word)); });
  json["origin_ns"] = record.origin_ns;
  json["end_ns"] = record.end_ns;
  json["step_spans"] = List(record.step_spans, StepJson);
  json["lifetimes"] = List(record.lifetimes, LifetimeJson);
  return json;
}

}  // namespace kintsugi
