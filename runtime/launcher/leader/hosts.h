// Hosts: where a run's processes are, as its leader reaches them: on its own host (one_host.h), or on those of several
// launchers (node_hosts.h). Nobody else asks which of the two a run has.
//
// Threads: one, that of the leader.
// Ownership: of what reaches them. The controller, the account and the part that is told outlive it.
// Errors: what keeps it from starting a process is told as that process's end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/core/node_return.h"
#include "runtime/inject/injection.h"
#include "runtime/launcher/run/run_status.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

// What hosts, and who tells of their workers, ask of the leader above them.
class HostEvents {
 public:
  virtual ~HostEvents() = default;
  // Somebody came: perhaps the last one that was waited for.
  virtual void OnCame() = 0;
  // A process or a host has left: perhaps the last.
  virtual void OnLeft() = 0;
  // Nobody will tell how the processes of these ranks ended.
  virtual void OnGone(core::RankBlock ranks, const std::string& why) = 0;
  // The run cannot begin.
  virtual void OnNobodyCame(const std::string& why) = 0;
  // Asked for on a host.
  virtual void Stop() = 0;
  virtual void OnRequest(const std::string& request, std::function<void(std::string)> respond) = 0;
};

class Hosts {
 public:
  using Respond = std::function<void(std::string answer)>;
  virtual ~Hosts() = default;

  // Before the run: all that it needs to begin are here.
  virtual bool AllHere() const = 0;
  // Right before and right after the controller begins.
  virtual void OnStarting() {}
  virtual void OnStarted() {}

  virtual void Spawn(Rank rank, Incarnation incarnation) = 0;
  virtual void Kill(Rank rank, Incarnation incarnation, const std::string& reason) = 0;
  // Arms a fault where its rank lives. `request`: as it was asked for.
  virtual void Inject(const Injection& injection, const std::string& request, Respond respond) = 0;
  // Others cannot reach the host of the ranks from this one on: it is away, whatever it says.
  virtual void CutOff(Rank /*first*/, const std::string& /*why*/) {}
  // What a node has that is to be free of ranks, by its number as an operator knows it; no ranks: it has none.
  // Errors: there is no such node here.
  virtual Result<core::RankBlock> RanksOfNode(int number) const = 0;
  // Somebody waits who would take them.
  virtual bool SpareHere() const { return false; }
  // Into the log here and of every host.
  virtual void Say(LogLevel level, const std::string& line) = 0;

  // Ten times a second: who stays away, and what is done about it. Every few milliseconds: what is told to all.
  virtual void Check(TimePoint /*now*/) {}
  virtual void Poll(TimePoint /*now*/) {}
  // What decides even splits has changed: all hear of it at once.
  virtual void PulseAll() {}

  // The run has ended: processes leave, and so do their launchers; or all loops are over, and first is heard how the
  // processes leave.
  virtual void Leave(const wire::NodeEnd& end) = 0;
  // At once, as far as they are this host's.
  virtual void EndNow() = 0;
  // Nobody is left.
  virtual bool left() const = 0;

  // What this knows of a status and of the result. Places of those that are not here and should be or were.
  virtual void LookAt(RunStatus* status) const = 0;
  virtual std::vector<std::string> Names() const { return {}; }
  virtual std::vector<int> Away() const { return {}; }
  virtual uint64_t reports_lost() const { return 0; }
};

}  // namespace kintsugi
