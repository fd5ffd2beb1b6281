// IncidentShelf: incidents that are over, as a launcher keeps them for leaders to come: the report of the one that leads
// at the end tells of those that came under all others.
//
// Threads: none; pure.
// Ownership: values.
// Errors: an incident that cannot be read is left out, and counts as one of which no more is known.
// Invariants: of one number one incident is kept, as told last; the newest KeepIncidents::kMax are.
#pragma once

#include <map>
#include <vector>

#include "runtime/launcher/launcher.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// As it is told, and back. `begin`: of the run, by the clock here.
wire::KeptIncident ToKept(const IncidentResult& incident, TimePoint begin);
std::vector<IncidentResult> FromKept(const std::vector<wire::KeptIncident>& kept, TimePoint begin);

class IncidentShelf {
 public:
  void OnTold(const wire::KeepIncidents& told);
  std::vector<wire::KeptIncident> All() const;  // in the order of their numbers

 private:
  std::map<uint64_t, wire::KeptIncident> kept_;
};

}  // namespace kintsugi
