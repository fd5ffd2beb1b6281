// RunStatus: what can be seen of a run at one instant, as plain data. `kintsugi status` and observers of the launcher
// (run_observer.h) are told from it, so that all say the same.
//
// Ownership: values.
// Units: in the names or std::chrono.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/train_phase.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/gate_word.h"
#include "runtime/launcher/run/run_times.h"
#include "runtime/launcher/run/save_history.h"
#include "runtime/launcher/run/step_times.h"
#include "runtime/launcher/run/world_change.h"
#include "runtime/net/close_reason.h"

namespace kintsugi {

struct RankStatus {
  Rank rank;
  int node = 0;
  Incarnation incarnation;
  core::ControllerCore::Life life = core::ControllerCore::Life::kAbsent;
  bool connected = false;
  uint64_t pid = 0;
  uint64_t step = 0;  // newest one begun
  int respawns = 0;
  std::optional<Duration> late;        // of a slow rank: behind the others
  std::optional<core::GateWord> gate;  // these two where its page was read
  std::optional<TrainPhase> phase;
};

// A node of several, as its launcher said.
struct NodePresence {
  std::string name;     // its number, as its operator knows it; "controller-0" of one without ranks
  std::string host;     // its host's name; empty: it never came, or its launcher is older
  std::string address;  // as the others reach it
  std::string version;  // of its program
  bool here = false;
  bool spare = false;  // it has no ranks, and waits for those of another
};

// Why ranks waited for longer than they are known to, the last time.
struct HangStatus {
  core::Blame blame;
  TimePoint at;
};

// What all incidents that are over came to.
struct IncidentTally {
  std::map<std::pair<core::FaultKind, std::optional<Rung>>, uint64_t> by_cause;
  std::map<core::Phase, Duration> in_phase;
  SecondsHistogram down;  // from the fault until all ranks stepped again
  uint64_t steps_lost = 0;
  uint64_t bytes_streamed = 0;
};

struct RunStatus {
  TimePoint at;
  std::string job;
  std::string address;   // where the controller listens
  int world_size = 0;    // ranks that take part
  int places = 0;        // ... that could
  int ranks_wanted = 0;  // by an operator's word; 0: nobody said
  int nodes = 1;
  core::Phase phase = core::Phase::kAdmit;
  Term term;
  Generation generation;
  Step step;  // newest one that a rank has reported
  std::optional<double> loss;
  uint64_t incidents = 0;  // the one under way included
  IncidentTally over;
  StepTimes steps;
  TimeAccount time;
  std::optional<TimePoint> standing_since;  // the fault of an incident under way, once it has stopped all
  bool times_known = true;                  // else nobody here sees when steps begin, and `time` says nothing
  SaveHistory saves;
  bool pause_asked = false;         // by an operator
  std::optional<Step> paused_at;    // all ranks stand there for it
  std::vector<WorldChange> worlds;  // that the run went through, the newest ones
  Step snapshot;                    // newest that counts; 0: none
  uint64_t snapshots_made = 0, snapshots_abandoned = 0;
  uint64_t dropped_messages = 0, refused_frames = 0, refused_reports = 0;
  net::TransportCounters connections;
  std::vector<int> nodes_away;
  std::vector<int> spare_nodes;     // here, without ranks
  std::vector<NodePresence> hosts;  // of several nodes: those that are here, and those that are away
  int spares_wanted = 0, spares_waiting = 0;
  std::vector<RankStatus> ranks;
  std::optional<HangStatus> hang;
};

class Controller;

// What a controller knows by itself; the rest is its host's to fill in. `host`: where it listens.
RunStatus StatusOf(Controller& controller, const std::string& job, const std::string& host);

}  // namespace kintsugi
