// RunRecord: everything a run leaves behind for its report, as plain data.
//
// The launcher fills one in while it runs; summary.json, trace.json, record.json and index.html are all made from it
// and from nothing else, so a page can be rebuilt from record.json long after the run.
//
// Ownership: values all the way down; copying a record copies everything.
// Units: every *_ns is in nanoseconds on the monotonic clock, relative to `origin_ns`; every *_ms of an incident is
//   cumulative from the instant of the fault to the last rank reaching that point, nullopt where it was not reached.
// Errors: none here. Strings come from outside (command lines, error output of ranks) and may hold anything; the
// writers
//   escape them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/incident_summary.h"

namespace kintsugi {

// The machine a run was launched on, in words for a reader.
struct HostInfo {
  std::string hostname;
  std::string system;     // for example "Debian GNU/Linux 12, Linux 6.1"
  std::string processor;  // model name
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
  bool operator==(const HostInfo&) const = default;
};

// The controller's stay in one phase of an incident.
struct ControllerPhaseSpan {
  std::string phase;
  uint32_t attempt = 1;
  Generation generation;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const ControllerPhaseSpan&) const = default;
};

// One rank's work in one phase of an incident.
struct RankPhaseSpan {
  Rank rank;
  std::string phase;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const RankPhaseSpan&) const = default;
};

// One rank computing one step, or (in a long run, see CondenseSteps) the stretch of steps `step` to `last_step`.
struct StepSpan {
  Rank rank;
  Step step;
  Step last_step;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const StepSpan&) const = default;
};

// One life of a rank: a process from its start to its end.
struct RankLifetime {
  Rank rank;
  Incarnation incarnation{1};
  int64_t start_ns = 0;
  std::optional<int64_t> end_ns;  // nullopt: it lived to the end of the record
  std::string cause;              // of its end; empty when it finished by itself
  bool operator==(const RankLifetime&) const = default;
};

// From the step after this one on so many ranks took part.
struct WorldSpan {
  int64_t start_ns = 0;
  Step step;
  uint32_t ranks = 0;
  std::vector<Rank> left, came;
  uint64_t incident = 0;  // that changed it; 0: none that is known
  bool operator==(const WorldSpan&) const = default;
};

// An incident as everybody is told of it, and what stands in record.json only.
struct ReportedIncident : IncidentSummary {
  int64_t fault_ns = 0;             // the injector's stamp, else the first signal
  std::optional<Step> struck_step;  // the step being computed when the fault struck
  std::string struck_phase;         // the trainer's phase then ("update"), empty if unknown
  std::vector<ControllerPhaseSpan> phases;
  std::vector<RankPhaseSpan> rank_phases;
  bool operator==(const ReportedIncident&) const = default;
};

// Where the run's time went; what was useful is the rest of `end_ns`.
struct TimeSpent {
  int64_t starting_ns = 0;  // until all ranks were in their loops first
  int64_t down_ns = 0;      // from each fault until all ranks stepped again
  int64_t redone_ns = 0;    // spent on steps, or parts of one, that were thrown away
  int64_t saving_ns = 0;    // all ranks stood at a save point: a checkpoint was written, or replicas were compared
  int64_t paused_ns = 0;    // all ranks stood still because an operator asked for it
  bool operator==(const TimeSpent&) const = default;
};

// What became of the run's saves.
struct SaveSummary {
  uint64_t made = 0;
  uint64_t failed = 0;
  std::optional<Step> newest;  // that is whole; the one that the run was resumed from counts
  std::string last_failure;    // why; empty: none failed
  bool operator==(const SaveSummary&) const = default;
};

// What a rank said that is not as an undisturbed run would have it.
struct InexactNote {
  Rank rank;
  std::string text;
  bool operator==(const InexactNote&) const = default;
};

struct RunRecord {
  uint32_t world_size = 0;  // the most ranks that could take part
  // Committed by this run. A run that was resumed from step R counts from there: losses[i] is the loss of step R + i +
  // 1, and samples are those of these steps, so that the summaries of the runs of one training add up.
  uint64_t steps = 0;
  std::vector<double> losses;  // one per committed step, or of each losses_every-th, from the first on
  uint64_t losses_every = 1;   // long runs keep a curve
  std::optional<double> final_loss;
  std::string final_digest;
  uint64_t samples_consumed = 0;
  std::string samples_digest;
  int exit = 0;
  std::string reason;  // of the end, the run's last words
  std::vector<ReportedIncident> incidents;
  uint64_t incidents_before = 0;  // of a run that others led before: those that their journals alone tell of
  std::optional<TimeSpent> time;  // nullopt: not known, of a record of an older version
  SaveSummary saves;
  std::vector<InexactNote> inexact;     // the first ones
  uint64_t inexact_count = 0;           // of all
  std::vector<std::string> not_struck;  // faults that were ordered and did not strike, as --inject takes them
  std::vector<WorldSpan> worlds;        // that ranks left, or came to; empty: the run had one world

  // The rest is in record.json only, not in the summary.
  uint64_t resumed_from = 0;  // R; 0 for a run that began afresh
  HostInfo host;
  std::string started_at;       // calendar time, ISO 8601, for people; no interval is ever taken from it
  int64_t started_unix_ms = 0;  // the same, for times of day on the page; 0: not known
  int32_t utc_offset_minutes = 0;
  std::vector<std::string> hosts;  // of a run over several: "node 1, 10.0.0.2, ranks 4 to 7"
  std::vector<std::string> command_line;
  std::vector<std::string> struck;         // the ordered faults that struck, as --inject takes them
  std::vector<std::string> launcher_line;  // the whole command, `kintsugi run` and its options too; empty: not known
  int64_t origin_ns = 0;                   // the instant on CLOCK_MONOTONIC that all other *_ns count from
  int64_t end_ns = 0;
  std::vector<StepSpan> step_spans;
  std::vector<RankLifetime> lifetimes;
  bool operator==(const RunRecord&) const = default;

  // The useful share of the run's time, 0 to 1; nullopt where it is not known.
  std::optional<double> Goodput() const {
    if (!time || end_ns <= 0) return std::nullopt;
    const double lost = static_cast<double>(time->starting_ns) + static_cast<double>(time->down_ns) +
                        static_cast<double>(time->redone_ns) + static_cast<double>(time->saving_ns) +
                        static_cast<double>(time->paused_ns);
    const double useful = 1 - lost / static_cast<double>(end_ns);
    return useful < 0 ? 0 : useful > 1 ? 1 : useful;
  }
  uint64_t last_step() const { return resumed_from + (losses_every > 1 ? steps : losses.size()); }
  // Of the step with this number in the whole training, or the last one before it that the curve has; nullopt where
  // this run did not commit it.
  std::optional<double> LossOf(uint64_t step) const {
    if (step <= resumed_from || step > last_step()) return std::nullopt;
    const uint64_t at = (step - resumed_from - 1) / losses_every;
    return at < losses.size() ? std::optional(losses[at]) : std::nullopt;
  }
};

}  // namespace kintsugi
