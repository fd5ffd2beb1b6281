#include "tools/report/extent.h"

#include <algorithm>
#include <cmath>

namespace kintsugi {

namespace {
constexpr int64_t kLimitNs = 4'000'000'000'000'000'000;
}  // namespace

int64_t Held(int64_t ns) { return std::clamp(ns, -kLimitNs, kLimitNs); }

double MsBetween(int64_t start_ns, int64_t end_ns) {
  return (static_cast<double>(end_ns) - static_cast<double>(start_ns)) / 1e6;
}

int64_t InstantOf(const ReportedIncident& incident, double milliseconds_after_fault) {
  constexpr double kLimit = static_cast<double>(kLimitNs);
  if (!std::isfinite(milliseconds_after_fault)) return Held(incident.fault_ns);
  const double instant = static_cast<double>(incident.fault_ns) + milliseconds_after_fault * 1e6;
  return std::llround(std::clamp(instant, -kLimit, kLimit));
}

TimeExtent IncidentExtent(const ReportedIncident& incident) {
  TimeExtent extent{Held(incident.fault_ns), Held(incident.fault_ns)};
  const auto include = [&](int64_t start, int64_t end) {
    extent.start_ns = std::min(extent.start_ns, Held(start));
    extent.end_ns = std::max({extent.end_ns, Held(start), Held(end)});
  };
  for (const ControllerPhaseSpan& span : incident.phases) include(span.start_ns, span.end_ns);
  for (const RankPhaseSpan& span : incident.rank_phases) include(span.start_ns, span.end_ns);
  for (const auto& ms :
       {incident.detected_ms, incident.parked_ms, incident.rebuilt_ms, incident.repaired_ms, incident.resumed_ms}) {
    if (ms) include(incident.fault_ns, InstantOf(incident, *ms));
  }
  return extent;
}

}  // namespace kintsugi
