// Story: what a replayed run was like, in words and as JSON: incident by incident, the signal, the ranks, the phases,
// the rungs and why, the times.
//
// Threads: none. Feed it as journal::Replay's listener.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/journal/replay.h"

namespace kintsugi {

class Story {
 public:
  void Take(const journal::Input& input, const std::vector<core::ControllerAction>& actions);

  struct Moment {
    Duration at{};  // since the run began
    core::Transition transition;
  };
  struct Incident {
    uint64_t id = 0;
    std::vector<Moment> phases;
    std::vector<std::pair<Duration, core::KillProcess>> kills;
    std::vector<std::pair<Duration, core::SpawnProcess>> spawns;
    std::optional<core::IncidentRecord> record;  // once it is closed
  };
  const std::map<uint64_t, Incident>& incidents() const { return incidents_; }

  // `incident` 0: all, and how the run began and ended.
  std::string Words(uint64_t incident) const;
  // An object: world_size, incidents, ended.
  std::string Json(uint64_t incident) const;

 private:
  Duration Since(TimePoint t) const { return t - begin_; }
  std::string Words(const Incident& incident) const;

  TimePoint begin_, now_;
  int spawned_at_start_ = 0;
  uint64_t under_way_ = 0;  // 0: no incident
  std::optional<Duration> running_at_;
  std::map<uint64_t, Incident> incidents_;
  std::vector<std::pair<Duration, std::string>> asked_;  // by an operator
  std::vector<std::pair<Duration, core::CheckpointReady>> checkpoints_;
  std::optional<std::pair<Duration, core::RunEnded>> ended_;
};

// One line: how much was recorded and how it ended.
std::string Summary(const journal::JournalReader& reader, const journal::Replayed& replayed);

}  // namespace kintsugi
