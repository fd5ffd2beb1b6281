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

// One rung of the recovery ladder and why it was taken or refused.
struct RungReason {
  std::string rung;
  std::string reason;
  bool operator==(const RungReason&) const = default;
};

// The controller's stay in one phase of an incident.
struct PhaseSpan {
  std::string phase;
  uint32_t attempt = 1;
  Generation generation;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const PhaseSpan&) const = default;
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

struct IncidentRecord {
  uint64_t id = 0;
  std::string signal;       // what was noticed first
  std::string fault;        // what it was: "kill", "throw", ...
  std::vector<Rank> ranks;  // root causes, not the ranks that merely felt it
  std::string cause;        // told in words: signal, exit code, last lines of error output
  Step step;                // S: where all live ranks met
  uint32_t attempts = 1;
  Term term;
  Generation generation;            // the one the run went on in
  std::string path;                 // ladder rung
  std::vector<RungReason> reasons;  // cheapest rung first
  std::optional<double> detected_ms;
  std::optional<double> parked_ms;
  std::optional<double> rebuilt_ms;
  std::optional<double> repaired_ms;
  std::optional<double> resumed_ms;
  uint64_t bytes_streamed = 0;
  std::optional<double> stream_gbps;  // 10^9 bytes per second; nullopt where nothing was streamed
  std::vector<Rank> sources;

  // The rest is in record.json only, not in the summary.
  int64_t fault_ns = 0;             // the injector's stamp, else the first signal
  std::optional<Step> struck_step;  // the step being computed when the fault struck
  std::string struck_phase;         // the trainer's phase then ("update"), empty if unknown
  std::vector<PhaseSpan> phases;
  std::vector<RankPhaseSpan> rank_phases;
  bool operator==(const IncidentRecord&) const = default;
};

struct RunRecord {
  uint32_t world_size = 0;
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
  std::vector<IncidentRecord> incidents;

  // The rest is in record.json only, not in the summary.
  uint64_t resumed_from = 0;  // R; 0 for a run that began afresh
  HostInfo host;
  std::string started_at;  // calendar time, ISO 8601, for people; no interval is ever taken from it
  std::vector<std::string> command_line;
  int64_t origin_ns = 0;  // the instant on CLOCK_MONOTONIC that all other *_ns count from
  int64_t end_ns = 0;
  std::vector<StepSpan> step_spans;
  std::vector<RankLifetime> lifetimes;
  bool operator==(const RunRecord&) const = default;

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
