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

}  // namespace kintsugi
