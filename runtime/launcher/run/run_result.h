// What came of a run, as its leader knows it.
//
// Ownership: values.
// Units: in the names or std::chrono.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/controller/report_ledger.h"
#include "runtime/core/controller_types.h"
#include "runtime/inject/ledger.h"
#include "runtime/launcher/run/run_times.h"
#include "runtime/launcher/run/save_history.h"
#include "runtime/launcher/run/world_change.h"

namespace kintsugi {

struct RankLife {
  Rank rank;
  Incarnation incarnation;
  TimePoint begin;
  std::optional<TimePoint> end;
  std::string cause;
};
struct StepTiming {
  Rank rank;
  Step step;
  TimePoint begin;
  TimePoint end;
};
struct FiredInjection {
  Injection injection;
  TimePoint at;
};
struct IncidentResult {
  core::IncidentRecord record;
  std::optional<FiredInjection> injected;  // what the injector did, where this incident was ordered
};

// What ranks said that is not as an undisturbed run would have it: the first sentences, and how many there were.
struct InexactNotes {
  static constexpr size_t kKept = 64;
  struct Note {
    Rank rank;
    std::string text;
  };
  std::vector<Note> first;
  uint64_t count = 0;
};

struct RunResult {
  int exit_code = 0;
  std::string text;
  bool asked = false;  // by a signal or a request: somebody wanted it to end
  std::optional<uint64_t> final_digest;
  Step resumed_from;             // 0: the run began afresh
  Step committed;                // last step of the whole training, those of earlier runs included
  ReportLedger::Totals reports;  // of the steps that this run committed: after resumed_from, to committed
  std::vector<IncidentResult> incidents;
  uint64_t incidents_before = 0;  // under other leaders, whose journals alone tell of them
  std::vector<RankLife> lives;
  std::vector<StepTiming> steps;
  std::vector<WorldChange> worlds;  // the newest ones
  std::vector<FiredInjection> fired;
  std::vector<std::string> not_struck;  // faults that were ordered and did not strike, as --inject takes them
  std::vector<std::string> hosts;       // of several nodes, as far as this leader knows them
  SaveHistory saves;
  InexactNotes inexact;
  TimeAccount time;
  TimePoint begin;
  TimePoint end;
  uint64_t reports_lost = 0;
};

}  // namespace kintsugi
