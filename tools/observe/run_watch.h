// RunWatch: what an operator is told of a run beside its incidents, as it shows from one status to the next: a save failed, a node is
// lost, no spare is left, a certificate ends. And how each notice looks.
//
// What is the whole run's is told by the launcher that leads, so that it is told once; a certificate is its own host's.
// Threads: none; pure: the time of day comes in as an argument.
// Errors: none. Texts come from outside and may hold anything; what JSON cannot hold becomes U+FFFD.
// Invariants: each thing is told once, and again only when it had been well meanwhile. What comes and goes between two statuses is not
// told of, but for saves, which are counted.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/launcher/run/run_observer.h"

namespace kintsugi::observe {

struct OperatorNotice {
  std::string event;  // "incident", "save_failed", "node_lost", "spares_used_up", "certificate_ends", "run_ended"
  std::string says;   // what happened, in a sentence
  std::string remedy;
  std::optional<NodePresence> where;                               // none: the host that tells
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // what this event has beside that
};

using WallTime = std::chrono::system_clock::time_point;

// `own`: the host that tells. `link`: where more is to be seen; empty: nowhere.
std::string NoticeJson(const OperatorNotice& notice, const NodeStatus& own, WallTime now, const std::string& link);

// An incident, as summary.json has it. `status`: as it was last seen, for where its first rank is.
OperatorNotice IncidentNotice(nlohmann::ordered_json summary, const NodeStatus& status);
// `again_after`: it is begun again by itself.
OperatorNotice EndNotice(int exit_code, const std::string& reason, std::optional<Duration> again_after);

class RunWatch {
 public:
  // So long a node is away before it is told of: those that come back, or come to a new leader, are no news.
  static constexpr Duration kAway = std::chrono::seconds(2);
  // ... and so long no process waits, where one is to: a new one is about to.
  static constexpr Duration kNoneWaits = std::chrono::seconds(60);

  std::vector<OperatorNotice> See(const NodeStatus& status, TimePoint now, WallTime wall);
  // What the last status did not show yet, at the run's end.
  std::vector<OperatorNotice> End(const SaveHistory& saves);

 private:
  struct Absence {
    TimePoint since;
    bool told = false;
  };
  void SeeSaves(const SaveHistory& saves, std::vector<OperatorNotice>* news);
  void SeeNodes(const RunStatus& run, TimePoint now, std::vector<OperatorNotice>* news);
  void SeeSpares(const RunStatus& run, TimePoint now, std::vector<OperatorNotice>* news);
  void SeeCertificate(WallTime ends, WallTime wall, std::vector<OperatorNotice>* news);

  bool leads_ = false;
  Duration total_{};  // of the run so far: where it shrinks another start has begun
  uint64_t failed_saves_ = 0;
  std::map<std::string, bool> was_here_;  // by name; of nodes that were seen
  std::map<std::string, Absence> away_;
  bool took_over_ = false;
  size_t spare_nodes_ = 0;
  std::optional<Absence> none_waits_;
  WallTime certificate_;  // what was told of
  size_t certificate_told_ = 0;
};

}  // namespace kintsugi::observe
