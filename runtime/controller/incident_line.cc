#include "runtime/controller/incident_line.h"

#include <algorithm>

#include "runtime/base/log.h"

namespace kintsugi {

uint64_t StepsLost(const core::IncidentRecord& record) {
  if (!record.step || !record.begun) return 0;
  return record.begun->value() - std::min(*record.begun, *record.step).value();
}

double DownMilliseconds(const core::IncidentRecord& record, TimePoint now) {
  return std::max(0.0, ToMilliseconds(record.resumed_at.value_or(now) - record.fault_at));
}

std::string IncidentLine(const core::IncidentRecord& record, TimePoint now) {
  std::string ranks;
  for (Rank rank : record.ranks) ranks += (ranks.empty() ? "" : ",") + rank.ToString();
  return LogLine("incident", {{"id", std::to_string(record.id)},
                              {"cause", std::string(core::FaultKindName(record.signal)) + ": " + record.cause},
                              {"ranks", ranks.empty() ? "none" : ranks},
                              {"rung", record.rung ? std::string(core::RungName(*record.rung)) : "none"},
                              {"down_ms", std::to_string(static_cast<int64_t>(DownMilliseconds(record, now) + 0.5))},
                              {"steps_lost", std::to_string(StepsLost(record))}});
}

std::vector<std::string> HangLines(const core::Blame& blame) {
  const auto joined = [](const std::vector<Rank>& ranks) {
    std::string text;
    for (Rank rank : ranks) text += (text.empty() ? "" : ",") + rank.ToString();
    return text.empty() ? "none" : text;
  };
  std::vector<std::string> lines = {LogLine(
      "hang",
      {{"why", std::string(core::BlameKindName(blame.kind))}, {"ranks", joined(blame.ranks)}, {"text", blame.text}})};
  for (const core::FoldedStack& stack : blame.stacks)
    lines.push_back(LogLine("hang_stack", {{"ranks", joined(stack.ranks)}, {"stack", stack.text}}));
  return lines;
}

IncidentSummary Summarize(const core::IncidentRecord& record, TimePoint now) {
  const auto since_fault = [&](std::optional<TimePoint> t) -> std::optional<double> {
    return t ? std::optional(ToMilliseconds(*t - record.fault_at)) : std::nullopt;
  };
  IncidentSummary told;
  told.id = record.id;
  told.signal = std::string(core::FaultKindName(record.signal));
  told.fault = told.signal;
  told.ranks = record.ranks;
  told.cause = record.cause;
  told.step = record.step.value_or(Step());
  told.attempts = static_cast<uint32_t>(record.attempts);
  told.term = record.term;
  told.generation = record.generation;
  told.path = record.rung ? std::string(core::RungName(*record.rung)) : "";
  for (const core::RungReason& reason : core::ReasonsOf(record))
    told.reasons.push_back({std::string(core::RungName(reason.rung)), reason.text});
  told.detected_ms = since_fault(record.detected_at);
  told.parked_ms = since_fault(record.parked_at);
  told.rebuilt_ms = since_fault(record.rebuilt_at);
  told.repaired_ms = since_fault(record.repaired_at);
  told.resumed_ms = since_fault(record.resumed_at);
  told.bytes_streamed = record.bytes_moved;
  if (record.bytes_moved > 0 && record.repaired_at && record.rebuilt_at) {
    const double seconds = ToMilliseconds(*record.repaired_at - *record.rebuilt_at) / 1000;
    if (seconds > 0) told.stream_gbps = static_cast<double>(record.bytes_moved) / seconds / 1e9;
  }
  told.sources = record.sources;
  told.down_ms = DownMilliseconds(record, now);
  told.steps_lost = StepsLost(record);
  return told;
}

nlohmann::json IncidentJson(const core::IncidentRecord& record, bool over, TimePoint now) {
  nlohmann::json json = ToJson(Summarize(record, now));
  json["over"] = over;
  if (!record.step) json["step"] = nullptr;
  if (!record.rung) json["path"] = nullptr;
  return json;
}

std::string UnreachableLine(const core::RoadClosed& road) {
  return LogLine("unreachable",
                 {{"from", "rank " + road.from.ToString() + " on " + road.from_host},
                  {"to", "rank " + road.to.ToString() + " on " + road.to_host},
                  {"port", std::to_string(road.port)},
                  {"remedy", "both reach the leader: look at the firewall and the network between these two hosts"}});
}

std::string CrewLine(const core::CrewChanged& crew, int seats) {
  const auto list = [](const std::vector<Rank>& ranks) {
    std::string text;
    for (Rank rank : ranks) text += (text.empty() ? "" : ",") + rank.ToString();
    return text.empty() ? "none" : text;
  };
  return LogLine("world_changed", {{"world", std::to_string(crew.ranks.size())},
                                   {"of", std::to_string(seats)},
                                   {"left", list(crew.left)},
                                   {"step", crew.step.ToString()},
                                   {"came", list(crew.came)}});
}

std::string GoesOnLine(const core::AttemptsGrow& grown) {
  return LogLine("incident_goes_on", {{"id", std::to_string(grown.incident)},
                                      {"attempts", std::to_string(grown.attempts)},
                                      {"for", WholeSeconds(grown.since)},
                                      {"last", grown.reason}});
}

}  // namespace kintsugi
