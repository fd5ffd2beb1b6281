#include "tests/unit/report/sample_record.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/random.h"

namespace kintsugi {
namespace {

constexpr uint64_t kSteps = 80;
constexpr int kRanks = 4;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStepLength = 18 * kMs;
constexpr int64_t kStart = 420 * kMs;

std::vector<double> Losses() {
  Random random(7);
  std::vector<double> losses;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const double smooth = 2.31 + 3.24 * std::exp(-static_cast<double>(step) / 19.0);
    losses.push_back(static_cast<float>(smooth + 0.16 * (random.Unit() - 0.5)));
  }
  return losses;
}

// Steps first to last on all ranks from `start`; the last one ends early on the ranks that a fault interrupts.
int64_t AddSteps(RunRecord* record, uint64_t first, uint64_t last, int64_t start) {
  for (uint64_t step = first; step <= last; ++step, start += kStepLength) {
    for (int rank = 0; rank < kRanks; ++rank) {
      record->step_spans.push_back(
          {Rank(rank), Step(step), Step(step), start + rank * 40'000, start + kStepLength - 200'000});
    }
  }
  return start;
}

// Nobody steps on beyond a fault.
void Interrupt(RunRecord* record, int64_t fault_ns) {
  for (StepSpan& span : record->step_spans) span.end_ns = std::min(span.end_ns, fault_ns);
}

struct Stretch {
  const char* phase;
  int64_t from_ms10;  // tenths of a millisecond after the fault
  int64_t to_ms10;
};

void AddPhases(ReportedIncident* incident, uint32_t attempt, uint64_t generation,
               const std::vector<Stretch>& stretches) {
  for (const Stretch& s : stretches) {
    incident->phases.push_back({s.phase, attempt, Generation(generation), incident->fault_ns + s.from_ms10 * kMs / 10,
                                incident->fault_ns + s.to_ms10 * kMs / 10});
  }
}

void AddRankPhases(ReportedIncident* incident, const std::vector<int>& ranks, const std::vector<Stretch>& stretches) {
  for (int rank : ranks) {
    for (const Stretch& s : stretches) {
      incident->rank_phases.push_back({Rank(rank), s.phase, incident->fault_ns + s.from_ms10 * kMs / 10 + rank * 90'000,
                                       incident->fault_ns + s.to_ms10 * kMs / 10 + rank * 60'000});
    }
  }
}

ReportedIncident Killed(int64_t fault_ns) {
  ReportedIncident incident;
  incident.id = 1;
  incident.signal = "process exit (pidfd)";
  incident.fault = "kill";
  incident.ranks = {Rank(2)};
  incident.cause = "SIGKILL, 9 tensors of 24 updated";
  incident.step = Step(41);
  incident.term = {1, 17};
  incident.generation = Generation(2);
  incident.path = "respawn";
  incident.reasons = {{"resume", "the process is gone"},
                      {"retry", "state was lost with it"},
                      {"patch", "no device context is left"},
                      {"rebuild", "no process is left"},
                      {"adopt", "its memory was torn: the update had begun and not committed"},
                      {"respawn", "rank 0 holds the same shard at step 41, and a respawn is left"}};
  incident.detected_ms = 2.4;
  incident.parked_ms = 11.8;
  incident.rebuilt_ms = 171.3;
  incident.repaired_ms = 206.9;
  incident.resumed_ms = 228.4;
  incident.bytes_streamed = 43'515'904;
  incident.stream_gbps = 1.94;
  incident.sources = {Rank(0)};
  incident.fault_ns = fault_ns;
  incident.struck_step = Step(41);
  incident.struck_phase = "update";
  incident.down_ms = 228.4;
  AddPhases(&incident, 1, 2,
            {{"CONFIRM", 24, 34},
             {"LOCK", 34, 61},
             {"STOP", 61, 93},
             {"CLEAN", 93, 118},
             {"ADMIT", 118, 1216},
             {"REBUILD", 1216, 1713},
             {"REPAIR", 1713, 1958},
             {"VERIFY", 1958, 2069},
             {"ROLLBACK", 2069, 2201}});
  AddRankPhases(&incident, {0, 1, 3}, {{"STOP", 63, 88}, {"CLEAN", 94, 114}, {"REBUILD", 1221, 1702}});
  AddRankPhases(&incident, {2},
                {{"REBUILD", 1230, 1706}, {"REPAIR", 1716, 1952}, {"VERIFY", 1960, 2060}, {"ROLLBACK", 2072, 2196}});
  AddRankPhases(&incident, {0}, {{"REPAIR", 1718, 1950}, {"VERIFY", 1960, 2044}, {"ROLLBACK", 2072, 2130}});
  AddRankPhases(&incident, {1, 3}, {{"VERIFY", 1960, 2040}, {"ROLLBACK", 2072, 2140}});
  return incident;
}

ReportedIncident ThrewAndDied(int64_t fault_ns) {
  ReportedIncident incident;
  incident.id = 2;
  incident.signal = "exception reported by the trainer";
  incident.fault = "throw";
  incident.ranks = {Rank(0), Rank(3)};
  incident.cause = "rank 0: std::runtime_error: injected fault\nrank 3: SIGKILL while it sent chunk 7 of 42";
  incident.step = Step(63);
  incident.attempts = 3;
  incident.term = {1, 17};
  incident.generation = Generation(5);
  incident.path = "respawn";
  incident.reasons = {{"retry", "rank 0 threw inside its update: its shard is torn"},
                      {"rebuild", "enough for rank 0, but rank 3 has no process"},
                      {"adopt", "rank 3: digest differs from the record of rank 1"},
                      {"respawn", "rank 1 holds the shard of rank 3, rank 2 that of rank 0"}};
  incident.detected_ms = 0.6;
  incident.parked_ms = 8.9;
  incident.rebuilt_ms = 312.6;
  incident.repaired_ms = 371.2;
  incident.resumed_ms = 398.0;
  incident.bytes_streamed = 61'865'984;
  incident.stream_gbps = 1.71;
  incident.sources = {Rank(1), Rank(2)};
  incident.fault_ns = fault_ns;
  incident.struck_step = Step(63);
  incident.struck_phase = "update";
  incident.down_ms = 398.0;
  incident.steps_lost = 1;
  AddPhases(&incident, 1, 3,
            {{"CONFIRM", 6, 16},
             {"LOCK", 16, 40},
             {"STOP", 40, 70},
             {"CLEAN", 70, 89},
             {"REBUILD", 89, 520},
             {"REPAIR", 520, 748}});
  AddPhases(&incident, 2, 4, {{"LOCK", 772, 801}, {"STOP", 801, 830}, {"CLEAN", 830, 851}, {"ADMIT", 851, 1690}});
  AddPhases(&incident, 3, 5,
            {{"LOCK", 1740, 1768},
             {"STOP", 1768, 1790},
             {"CLEAN", 1790, 1812},
             {"ADMIT", 1812, 2610},
             {"REBUILD", 2610, 3126},
             {"REPAIR", 3126, 3590},
             {"VERIFY", 3590, 3712},
             {"ROLLBACK", 3712, 3850}});
  AddRankPhases(&incident, {0, 1, 2},
                {{"STOP", 42, 66},
                 {"CLEAN", 70, 86},
                 {"REBUILD", 92, 514},
                 {"REPAIR", 522, 744},
                 {"STOP", 804, 826},
                 {"CLEAN", 832, 848},
                 {"STOP", 1770, 1788},
                 {"CLEAN", 1793, 1808},
                 {"REBUILD", 2614, 3118},
                 {"REPAIR", 3130, 3584},
                 {"VERIFY", 3594, 3702},
                 {"ROLLBACK", 3716, 3838}});
  AddRankPhases(&incident, {3},
                {{"STOP", 42, 66},
                 {"CLEAN", 70, 86},
                 {"REBUILD", 92, 514},
                 {"REPAIR", 522, 726},
                 {"REBUILD", 2620, 3120},
                 {"REPAIR", 3132, 3586},
                 {"VERIFY", 3594, 3704},
                 {"ROLLBACK", 3716, 3842}});
  return incident;
}

RunRecord Common() {
  RunRecord record;
  record.world_size = kRanks;
  record.steps = kSteps;
  record.losses = Losses();
  record.final_loss = record.losses.back();
  record.final_digest = "9f3c41d07be2a85566f01c2ee4b7d93a";
  record.samples_consumed = kSteps * 32;
  record.samples_digest = "41c8e07713d25f6a90be8d6d11f0a4c2";
  record.host = {"anvil", "Debian GNU/Linux 12, Linux 6.1", "AMD EPYC 9554", 2, 8'589'934'592};
  record.started_at = "2026-11-21T09:14:02+00:00";
  record.started_unix_ms = 1'795'252'442'118;
  record.time = {.starting_ns = kStart, .down_ns = 0, .redone_ns = 0};
  record.origin_ns = 93'114'220'118'431;
  return record;
}

}  // namespace

RunRecord UndisturbedRun() {
  RunRecord record = Common();
  record.command_line = {"kintsugi", "run", "--nproc", "4", "--replicas", "2", "--", "byte_lm", "--steps", "80"};
  record.end_ns = AddSteps(&record, 1, kSteps, kStart);
  for (int rank = 0; rank < kRanks; ++rank) record.lifetimes.push_back({Rank(rank), Incarnation(1), 60 * kMs, {}, ""});
  return record;
}

RunRecord FaultedRun() {
  RunRecord record = Common();
  record.command_line = {
      "kintsugi",         "run",      "--nproc",           "4",        "--replicas", "2",  "--inject",
      "kill:2@41:update", "--inject", "throw:0@63:update", "--report", "out",        "--", "byte_lm",
      "--steps",          "80"};
  int64_t now = AddSteps(&record, 1, 41, kStart);
  const int64_t killed = now - 4 * kMs;
  Interrupt(&record, killed);
  record.incidents.push_back(Killed(killed));
  now = AddSteps(&record, 42, 63, killed + 2284 * kMs / 10);
  const int64_t threw = now - 3 * kMs;
  Interrupt(&record, threw);
  record.incidents.push_back(ThrewAndDied(threw));
  record.end_ns = AddSteps(&record, 64, kSteps, threw + 3980 * kMs / 10);
  const int64_t died = threw + 726 * kMs / 10;
  const int64_t again = threw + 1722 * kMs / 10;  // a first replacement that did not last
  record.time = {.starting_ns = kStart, .down_ns = 6264 * kMs / 10, .redone_ns = 15 * kMs, .saving_ns = 4 * kMs};
  record.saves = {.made = 2, .failed = 1, .newest = Step(60), .last_failure = "rank 1: No space left on device"};
  record.struck = {"kill:2@61:update"};
  record.launcher_line = record.command_line;
  record.command_line = {"byte_lm", "--steps", "80"};
  record.lifetimes = {{Rank(0), Incarnation(1), 60 * kMs, {}, ""},
                      {Rank(1), Incarnation(1), 62 * kMs, {}, ""},
                      {Rank(2), Incarnation(1), 64 * kMs, killed, "SIGKILL"},
                      {Rank(2), Incarnation(2), killed + 14 * kMs, {}, ""},
                      {Rank(3), Incarnation(1), 66 * kMs, died, "SIGKILL"},
                      {Rank(3), Incarnation(2), died + 16 * kMs, again, "exit code 1"},
                      {Rank(3), Incarnation(3), again + 14 * kMs, {}, ""}};
  return record;
}

RunRecord ElasticRun() {
  RunRecord record = FaultedRun();
  record.worlds = {{record.incidents[0].fault_ns + 2284 * kMs / 10, Step(41), 3, {Rank(2)}, {}, 1},
                   {record.end_ns - 2 * kStepLength, Step(78), 4, {}, {Rank(2)}, 0}};
  return record;
}

}  // namespace kintsugi
