#include <nlohmann/json.hpp>

#include "runtime/controller/incident_line.h"
#include "tools/replay/story.h"

namespace kintsugi {
namespace {

using nlohmann::json;

// Where the run did not come back the story ends with the incident.
json RecordJson(const core::IncidentRecord& record) {
  return IncidentJson(record, true, record.phases.empty() ? record.detected_at : record.phases.back().end);
}

}  // namespace

std::string Story::Json(uint64_t only) const {
  json incidents = json::array();
  for (const auto& [id, incident] : incidents_) {
    if (only > 0 && id != only) continue;
    json one = incident.record ? RecordJson(*incident.record) : json{{"id", id}, {"over", false}};
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
