#include "tools/report/extent.h"

#include <algorithm>
#include <cmath>

namespace kintsugi {

int64_t InstantOf(const IncidentRecord& incident, double milliseconds_after_fault) {
  constexpr double kLimit = 4.0e18;  // within int64_t, and beyond any uptime
  if (!std::isfinite(milliseconds_after_fault)) return incident.fault_ns;
  const double instant = static_cast<double>(incident.fault_ns) + milliseconds_after_fault * 1e6;
  return std::llround(std::clamp(instant, -kLimit, kLimit));
}

Extent IncidentExtent(const IncidentRecord& incident) {
  Extent extent{incident.fault_ns, incident.fault_ns};
  const auto include = [&](int64_t start, int64_t end) {
    extent.start_ns = std::min(extent.start_ns, start);
    extent.end_ns = std::max({extent.end_ns, start, end});
  };
  for (const PhaseSpan& span : incident.phases) include(span.start_ns, span.end_ns);
  for (const RankPhaseSpan& span : incident.rank_phases) include(span.start_ns, span.end_ns);
  for (const auto& ms :
       {incident.detected_ms, incident.parked_ms, incident.rebuilt_ms, incident.repaired_ms, incident.resumed_ms}) {
    if (ms) include(incident.fault_ns, InstantOf(incident, *ms));
  }
  return extent;
}

}  // namespace kintsugi
