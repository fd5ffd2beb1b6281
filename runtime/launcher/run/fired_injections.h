// FiredInjections: what the injector did, and which incident came of it.
//
// A rank that fires an injection notes it in its page, which is read every few milliseconds, and in several nodes it is
// told by a message; an incident may be repaired before. So either may be known first, and is looked for when the other
// comes.
// Threads: none; pure.
// Errors: none.
// Invariants: an injection belongs to one incident.
#pragma once

#include <optional>
#include <vector>

#include "runtime/launcher/run/run_result.h"

namespace kintsugi {

class FiredInjections {
 public:
  void Add(const FiredInjection& fired) { fired_.push_back({fired, false}); }
  // What is known to be the cause of this incident of an earlier leader.
  void AddKnown(const IncidentResult& incident) {
    if (incident.injected) fired_.push_back({*incident.injected, true});
  }
  // Those that struck a rank that `incident` blames, before that was over, and belong to no other incident, belong to
  // this one: the first is its cause and tells its instant, unless it has one already. `since`: when the run last went
  // on before it. What struck earlier was survived, and is no cause; but a bit that flipped may come to light late.
  void Attribute(IncidentResult* incident, TimePoint since);
  std::vector<FiredInjection> All() const;  // in the order in which they were told

 private:
  // Quiet: training goes on, and the incident in which it comes to light may have another cause.
  enum class Sort { kLoud, kQuiet };
  static Sort SortOf(InjectionKind kind);
  void AttributeThose(Sort sort, IncidentResult* incident, TimePoint since);

  struct Entry {
    FiredInjection fired;
    bool taken = false;
  };
  std::vector<Entry> fired_;
};

}  // namespace kintsugi
