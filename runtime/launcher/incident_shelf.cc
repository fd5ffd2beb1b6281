#include "runtime/launcher/incident_shelf.h"

#include <algorithm>
#include <utility>

#include "runtime/journal/text.h"

namespace kintsugi {

wire::KeptIncident ToKept(const IncidentResult& incident, TimePoint begin) {
  core::IncidentRecord record = incident.record;
  record.rank_spans.clear();  // one for each rank and phase: too much for a thousand ranks
  return {record.id, journal::WriteRecord(record, begin),
          incident.injected ? ToString(incident.injected->injection) : std::string()};
}

std::vector<IncidentResult> FromKept(const std::vector<wire::KeptIncident>& kept, TimePoint begin) {
  std::vector<IncidentResult> incidents;
  for (const wire::KeptIncident& one : kept) {
    Result<core::IncidentRecord> record = journal::ReadRecord(one.record, begin);
    const uint64_t before = incidents.empty() ? 0 : incidents.back().record.id;
    if (!record.ok() || record->id != one.id || one.id <= before) continue;
    IncidentResult incident{std::move(record).value(), std::nullopt};
    if (const Result<Injection> injection = ParseInjection(one.injection); !one.injection.empty() && injection.ok())
      incident.injected = {*injection, incident.record.fault_at};
    incidents.push_back(std::move(incident));
  }
  return incidents;
}

void IncidentShelf::OnTold(const wire::KeepIncidents& told) {
  if (told.all) kept_.clear();
  for (const wire::KeptIncident& incident : told.incidents) kept_.insert_or_assign(incident.id, incident);
  while (kept_.size() > wire::KeepIncidents::kMax) kept_.erase(kept_.begin());
}

std::vector<wire::KeptIncident> IncidentShelf::All() const {
  std::vector<wire::KeptIncident> all;
  for (const auto& [id, incident] : kept_) all.push_back(incident);
  return all;
}

}  // namespace kintsugi
