// The reading half of record_json.h.
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "runtime/base/json.h"
#include "tools/report/record_json.h"

namespace kintsugi {

static Status ReadJson(const JsonField& f, ControllerPhaseSpan* span) {
  return f.Read("phase", &span->phase, "attempt", &span->attempt, "generation", &span->generation, "start_ns",
                &span->start_ns, "end_ns", &span->end_ns);
}

static Status ReadJson(const JsonField& f, RankPhaseSpan* span) {
  return f.Read("rank", &span->rank, "phase", &span->phase, "start_ns", &span->start_ns, "end_ns", &span->end_ns);
}

static Status ReadJson(const JsonField& f, StepSpan* span) {
  return f.Read("rank", &span->rank, "step", &span->step, "last_step", &span->last_step, "start_ns", &span->start_ns,
                "end_ns", &span->end_ns);
}

static Status ReadJson(const JsonField& f, RankLifetime* life) {
  return f.Read("rank", &life->rank, "incarnation", &life->incarnation, "start_ns", &life->start_ns, "end_ns",
                &life->end_ns, "cause", &life->cause);
}

static Status ReadJson(const JsonField& f, WorldSpan* world) {
  std::optional<uint64_t> incident;
  KINTSUGI_RETURN_IF_ERROR(f.Read("start_ns", &world->start_ns, "step", &world->step, "ranks", &world->ranks, "left",
                                  &world->left, "came", &world->came, "incident", &incident));
  world->incident = incident.value_or(0);
  return Status::Ok();
}

static Status ReadJson(const JsonField& f, HostInfo* host) {
  return f.Read("hostname", &host->hostname, "system", &host->system, "processor", &host->processor, "cores",
                &host->cores, "memory_bytes", &host->memory_bytes);
}

static Status ReadJson(const JsonField& f, ToldReason* reason) {
  return f.Read("rung", &reason->rung, "reason", &reason->reason);
}

static Status ReadJson(const JsonField& f, ReportedIncident* incident) {
  KINTSUGI_RETURN_IF_ERROR(f.Read("id", &incident->id, "signal", &incident->signal, "fault", &incident->fault, "ranks",
                                  &incident->ranks, "cause", &incident->cause, "step", &incident->step, "attempts",
                                  &incident->attempts, "term", &incident->term.number, "controller_id",
                                  &incident->term.controller_id, "generation", &incident->generation, "path",
                                  &incident->path, "reasons", &incident->reasons));
  KINTSUGI_RETURN_IF_ERROR(f.Read("detected_ms", &incident->detected_ms, "parked_ms", &incident->parked_ms,
                                  "rebuilt_ms", &incident->rebuilt_ms, "repaired_ms", &incident->repaired_ms,
                                  "resumed_ms", &incident->resumed_ms, "bytes_streamed", &incident->bytes_streamed,
                                  "stream_gbps", &incident->stream_gbps, "sources", &incident->sources));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("down_ms", &incident->down_ms));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("steps_lost", &incident->steps_lost));
  return f.Read("fault_ns", &incident->fault_ns, "struck_step", &incident->struck_step, "struck_phase",
                &incident->struck_phase, "phases", &incident->phases, "rank_phases", &incident->rank_phases);
}

static Status ReadJson(const JsonField& f, SaveSummary* saves) {
  KINTSUGI_RETURN_IF_ERROR(
      f.Read("made", &saves->made, "failed", &saves->failed, "last_failure", &saves->last_failure));
  return f.ReadIfAny("newest_step", &saves->newest);
}

static Status ReadJson(const JsonField& f, InexactNote* note) {
  return f.Read("rank", &note->rank, "text", &note->text);
}

static Status ReadJson(const JsonField& f, TimeSpent* time) {
  KINTSUGI_RETURN_IF_ERROR(f.Read("starting", &time->starting_ns, "down", &time->down_ns, "redone", &time->redone_ns));
  // Earlier versions counted saves as useful, and could not pause.
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("saving", &time->saving_ns));
  return f.ReadIfAny("paused", &time->paused_ns);
}

namespace {

constexpr const char* kRemedy = "give a record.json that `kintsugi run --report` wrote";

// A loss that was not finite is null.
Status ReadLosses(const JsonField& f, std::vector<double>* losses) {
  std::vector<std::optional<double>> read;
  KINTSUGI_RETURN_IF_ERROR(f.Read("losses", &read));
  losses->reserve(read.size());
  for (const auto& loss : read) losses->push_back(loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  return Status::Ok();
}

// What earlier versions did not write is optional.
Status ReadNewer(const JsonField& f, RunRecord* record) {
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("time_ns", &record->time));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("saves", &record->saves));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("inexact", &record->inexact));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("inexact_count", &record->inexact_count));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("started_unix_ms", &record->started_unix_ms));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("utc_offset_minutes", &record->utc_offset_minutes));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("hosts", &record->hosts));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("struck", &record->struck));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("not_struck", &record->not_struck));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("worlds", &record->worlds));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("reason", &record->reason));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("launcher_line", &record->launcher_line));
  const auto every = f.Find("losses_every");
  if (!every) return Status::Ok();
  KINTSUGI_RETURN_IF_ERROR(ReadJson(*every, &record->losses_every));
  return record->losses_every > 0 ? Status::Ok() : every->Fail("is 0, but must be a positive number");
}

Status ReadRun(const JsonField& f, RunRecord* record) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField schema, f.Get("schema"));
  KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, schema.Integer());
  if (number != kRecordSchema)
    return schema.Fail("is " + std::to_string(number) + ", but must be " + std::to_string(kRecordSchema));
  KINTSUGI_RETURN_IF_ERROR(f.Read("world_size", &record->world_size, "steps", &record->steps));
  KINTSUGI_RETURN_IF_ERROR(ReadLosses(f, &record->losses));
  KINTSUGI_RETURN_IF_ERROR(f.Read("final_loss", &record->final_loss, "final_digest", &record->final_digest,
                                  "samples_consumed", &record->samples_consumed, "samples_digest",
                                  &record->samples_digest, "exit", &record->exit, "incidents", &record->incidents,
                                  "resumed_from", &record->resumed_from, "host", &record->host, "started_at",
                                  &record->started_at, "command_line", &record->command_line));
  KINTSUGI_RETURN_IF_ERROR(f.ReadIfAny("incidents_before", &record->incidents_before));
  KINTSUGI_RETURN_IF_ERROR(ReadNewer(f, record));
  return f.Read("origin_ns", &record->origin_ns, "end_ns", &record->end_ns, "step_spans", &record->step_spans,
                "lifetimes", &record->lifetimes);
}

}  // namespace

Result<RunRecord> RecordFromText(std::string_view text, const std::string& place) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, {.place = place, .remedy = kRemedy}));
  RunRecord record;
  KINTSUGI_RETURN_IF_ERROR(ReadRun(document.Root(), &record));
  return record;
}

Result<RunRecord> ReadRecord(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(StatusCode::kNotFound, "cannot open " + path.string() + "; name the folder of a finished report");
  }
  std::ostringstream text;
  text << file.rdbuf();
  return RecordFromText(text.str(), path.string());
}

}  // namespace kintsugi
