#include <nlohmann/json.hpp>

#include "tools/replay/story.h"

namespace kintsugi {
namespace {

using nlohmann::json;

json Milliseconds(std::optional<TimePoint> t, TimePoint since) { return t ? json(ToMilliseconds(*t - since)) : json(); }

// As in summary.json, where it is known.
json RecordJson(const core::IncidentRecord& record) {
  json reasons = json::array(), ranks = json::array();
  for (const core::RungReason& reason : record.reasons)
    reasons.push_back({{"rung", core::RungName(reason.rung)}, {"reason", reason.text}});
  for (Rank rank : record.ranks) ranks.push_back(rank.value());
  return {{"signal", core::FaultKindName(record.signal)},
          {"ranks", std::move(ranks)},
          {"cause", record.cause},
          {"step", record.step ? json(record.step->value()) : json()},
          {"attempts", record.attempts},
          {"generation", record.generation.value()},
          {"path", record.rung ? json(core::RungName(*record.rung)) : json()},
          {"reasons", std::move(reasons)},
          {"detected_ms", Milliseconds(record.detected_at, record.fault_at)},
          {"parked_ms", Milliseconds(record.parked_at, record.fault_at)},
          {"rebuilt_ms", Milliseconds(record.rebuilt_at, record.fault_at)},
          {"repaired_ms", Milliseconds(record.repaired_at, record.fault_at)},
          {"resumed_ms", Milliseconds(record.resumed_at, record.fault_at)},
          {"bytes_streamed", record.bytes_moved}};
}

}  // namespace

std::string Story::Json(uint64_t only) const {
  json incidents = json::array();
  for (const auto& [id, incident] : incidents_) {
    if (only > 0 && id != only) continue;
    json one = incident.record ? RecordJson(*incident.record) : json::object();
    one["id"] = id;
    one["over"] = incident.record.has_value();
    json phases = json::array();
    for (const Moment& m : incident.phases)
      phases.push_back({{"phase", core::PhaseName(m.transition.to)},
                        {"at_ms", ToMilliseconds(m.at)},
                        {"attempt", m.transition.attempt},
                        {"generation", m.transition.generation.value()},
                        {"reason", m.transition.reason}});
    one["phases"] = std::move(phases);
    incidents.push_back(std::move(one));
  }
  json ended;
  if (ended_)
    ended = {{"exit", ended_->second.exit_code},
             {"step", ended_->second.committed.value()},
             {"reason", ended_->second.text},
             {"at_ms", ToMilliseconds(ended_->first)}};
  // A cause may quote what a dying program printed.
  return json{{"incidents", std::move(incidents)}, {"ended", std::move(ended)}}.dump(-1, ' ', false,
                                                                                     json::error_handler_t::replace);
}

}  // namespace kintsugi
