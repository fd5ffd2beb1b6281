#include "runtime/launcher/run/fired_injections.h"

#include <algorithm>

namespace kintsugi {

void FiredInjections::Attribute(IncidentResult* incident, TimePoint since) {
  AttributeThose(Sort::kLoud, incident, since);
  if (!incident->injected) AttributeThose(Sort::kQuiet, incident, since);
}

void FiredInjections::AttributeThose(Sort sort, IncidentResult* incident, TimePoint since) {
  core::IncidentRecord& record = incident->record;
  const bool mismatch = record.signal == core::FaultKind::kDigestMismatch;
  for (Entry& entry : fired_) {
    const auto& [injection, at] = entry.fired;
    if (entry.taken || SortOf(injection.kind) != sort ||
        std::find(record.ranks.begin(), record.ranks.end(), injection.rank) == record.ranks.end())
      continue;
    if (record.resumed_at && at > *record.resumed_at) continue;
    if (at < since && !(injection.kind == InjectionKind::kFlip && mismatch)) continue;
    entry.taken = true;  // a second one of the same incident, too: no later one came of it
    if (incident->injected) continue;
    incident->injected = entry.fired;
    // The injector's stamp is the true instant of a fault that it caused.
    record.fault_at = std::min(at, record.detected_at);
  }
}

FiredInjections::Sort FiredInjections::SortOf(InjectionKind kind) {
  return kind == InjectionKind::kFlip || kind == InjectionKind::kFlipGrad || kind == InjectionKind::kSlow ? Sort::kQuiet
                                                                                                          : Sort::kLoud;
}

std::vector<FiredInjection> FiredInjections::All() const {
  std::vector<FiredInjection> all;
  for (const Entry& entry : fired_) all.push_back(entry.fired);
  return all;
}

}  // namespace kintsugi
