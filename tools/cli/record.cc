// From what a launcher returns to what a report shows.
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "runtime/base/host_name.h"
#include "runtime/controller/incident_line.h"
#include "runtime/core/ladder.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

std::string FieldOf(const std::string& file, const std::string& name, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) != 0) continue;
    std::string value = line.substr(line.find(separator) + 1);
    const size_t begin = value.find_first_not_of(" \t\"");
    const size_t end = value.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : value.substr(begin, end - begin + 1);
  }
  return "";
}

HostInfo Host() {
  HostInfo host;
  host.hostname = HostName();
  utsname system{};
  uname(&system);
  host.system = FieldOf("/etc/os-release", "PRETTY_NAME=", '=') + ", " + system.sysname + " " + system.release;
  host.processor = FieldOf("/proc/cpuinfo", "model name", ':');
  host.cores = std::thread::hardware_concurrency();
  struct sysinfo memory {};
  if (sysinfo(&memory) == 0) host.memory_bytes = static_cast<uint64_t>(memory.totalram) * memory.mem_unit;
  return host;
}

// The run's begin by the clock on the wall, as this host's users read it.
void TakeBegin(Duration ago, RunRecord* record) {
  const auto began =
      std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
  record->started_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(began.time_since_epoch()).count();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(began);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  record->utc_offset_minutes = static_cast<int32_t>(parts.tm_gmtoff / 60);
  char text[32], zone[16];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  const int32_t minutes = std::abs(record->utc_offset_minutes);
  std::snprintf(zone, sizeof zone, "%c%02d:%02d", record->utc_offset_minutes < 0 ? '-' : '+', minutes / 60,
                minutes % 60);
  record->started_at = std::string(text) + zone;
}

// The command as it was given, launcher's options included.
std::vector<std::string> OwnCommandLine() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

ReportedIncident Incident(const IncidentResult& incident, TimePoint origin, TimePoint end) {
  const core::IncidentRecord& from = incident.record;
  const auto after = [&](TimePoint t) { return (t - origin).count(); };
  ReportedIncident to{Summarize(from, end)};
  if (incident.injected) to.fault = std::string(InjectionKindName(incident.injected->injection.kind));
  to.fault_ns = after(from.fault_at);
  if (incident.injected) {
    to.struck_step = incident.injected->injection.step;
    to.struck_phase = std::string(TrainPhaseName(incident.injected->injection.phase));
  }
  for (const core::PhaseSpan& span : from.phases)
    to.phases.push_back({std::string(core::PhaseName(span.phase)), static_cast<uint32_t>(std::max(1, span.attempt)),
                         span.generation, after(std::max(span.begin, from.detected_at)), after(span.end)});
  for (const core::RankSpan& span : from.rank_spans)
    to.rank_phases.push_back({span.rank, std::string(core::PhaseName(span.phase)), after(span.begin), after(span.end)});
  return to;
}

}  // namespace

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

RunRecord MakeRecord(const RunOptions& options, const RunResult& result) {
  RunRecord record;
  record.world_size = static_cast<uint32_t>(WorldSize(options));
  // Of this run: a resumed one does not count what earlier runs committed.
  record.steps = result.committed.value() - std::min(result.committed, result.resumed_from).value();
  record.resumed_from = result.resumed_from.value();
  record.losses = result.reports.losses;
  record.losses_every = result.reports.losses_every;
  if (const auto last = result.reports.final_loss; last && !std::isnan(*last)) record.final_loss = *last;
  record.final_digest = result.final_digest ? Hex(*result.final_digest) : "";
  record.samples_consumed = result.reports.samples_consumed;
  record.samples_digest = Hex(result.reports.samples_digest);
  record.exit = result.exit_code;
  record.reason = result.text;
  record.not_struck = result.not_struck;
  record.incidents_before = result.incidents_before;
  for (const IncidentResult& incident : result.incidents)
    record.incidents.push_back(Incident(incident, result.begin, result.end));
  record.host = Host();
  record.hosts = result.hosts;
  TakeBegin(SteadyClock::SteadyNow() - result.begin, &record);
  for (const FiredInjection& fired : result.fired) record.struck.push_back(ToString(fired.injection));
  record.launcher_line = OwnCommandLine();
  record.time = {.starting_ns = result.time.starting.count(),
                 .down_ns = result.time.down.count(),
                 .redone_ns = result.time.redone.count(),
                 .saving_ns = result.time.saving.count(),
                 .paused_ns = result.time.paused.count()};
  record.saves = {result.saves.made, result.saves.failed, std::nullopt, ""};
  if (result.saves.newest) record.saves.newest = result.saves.newest->checkpoint.step;
  if (result.saves.last_failure) record.saves.last_failure = result.saves.last_failure->settled.text;
  for (const InexactNotes::Note& note : result.inexact.first) record.inexact.push_back({note.rank, note.text});
  record.inexact_count = result.inexact.count;
  record.command_line = options.command;
  record.origin_ns = result.begin.nanoseconds();
  record.end_ns = (result.end - result.begin).count();
  for (const StepTiming& timing : result.steps)
    record.step_spans.push_back({timing.rank, timing.step, timing.step, (timing.begin - result.begin).count(),
                                 (timing.end - result.begin).count()});
  for (const WorldChange& world : result.worlds)
    record.worlds.push_back({(world.at - result.begin).count(), world.step, static_cast<uint32_t>(world.ranks),
                             world.left, world.came, world.incident});
  for (const RankLife& life : result.lives) {
    RankLifetime to{life.rank, life.incarnation, (life.begin - result.begin).count(), std::nullopt, ""};
    if (life.end) to.end_ns = (*life.end - result.begin).count();
    if (life.cause != "exited with code 0") to.cause = life.cause;
    record.lifetimes.push_back(std::move(to));
  }
  return record;
}

}  // namespace kintsugi::cli
