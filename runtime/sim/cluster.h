// Cluster: a whole virtual run around the real cores: virtual time, a virtual network that carries the bytes of the
// real wire format, processes that start and die, trainers that compute, collectives, checkpoints, controllers and
// launchers, faults, and checkers of what a run promises (outcome.h).
//
// It builds the parts and tells each what it has to know; they share a World, and each knows only those that stand
// before it below. What goes the other way are the few calls of upward.h, and of the interfaces beside the parts that
// make them.
//
// Everything is drawn from the plan's seed: a seed is a replay. The drivers here do what the real drivers do.
//
// Threads: none.
// Ownership: of all parts; it stays where it was built.
// Errors: a broken promise, also a failed CHECK of a core, ends the run and is in its Outcome.
#pragma once

#include "runtime/sim/agents.h"
#include "runtime/sim/checkpoints.h"
#include "runtime/sim/collectives.h"
#include "runtime/sim/connection_faults.h"
#include "runtime/sim/controllers.h"
#include "runtime/sim/elected_hosts.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/electors.h"
#include "runtime/sim/end_checker.h"
#include "runtime/sim/faults.h"
#include "runtime/sim/followers.h"
#include "runtime/sim/handlers.h"
#include "runtime/sim/held_memory.h"
#include "runtime/sim/launcher_table.h"
#include "runtime/sim/lines.h"
#include "runtime/sim/memory_faults.h"
#include "runtime/sim/network.h"
#include "runtime/sim/node_faults.h"
#include "runtime/sim/node_processes.h"
#include "runtime/sim/one_host.h"
#include "runtime/sim/process_faults.h"
#include "runtime/sim/processes.h"
#include "runtime/sim/refusals.h"
#include "runtime/sim/relayouts.h"
#include "runtime/sim/rot.h"
#include "runtime/sim/seats.h"
#include "runtime/sim/snapshots.h"
#include "runtime/sim/spares.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/takeover.h"
#include "runtime/sim/trainer_faults.h"
#include "runtime/sim/trainers.h"
#include "runtime/sim/transfers.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

class Cluster {
 public:
  // `log` and `hook` may be null.
  explicit Cluster(Plan plan, LogFunction log = nullptr, Hook* hook = nullptr);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  Outcome Run();

 private:
  // Of the kind of run that the plan is.
  Hosts& HostsOf();
  Outcome Conclude();

  World world_;
  StateChecker state_checker_;
  TableChecker table_checker_;
  ElectionChecker election_checker_;
  EndChecker end_checker_;
  // What a rank's process is made of.
  Network network_;
  Rot rot_;
  HeldMemory held_;
  Collectives collectives_;
  Snapshots snapshots_;
  Refusals refusals_;
  Trainers trainers_;
  Relayouts relayouts_;
  Transfers transfers_;
  Checkpoints checkpoints_;
  Handlers handlers_;
  Spares spares_;
  Processes processes_;
  Agents agents_;
  // Controllers, and the hosts of either kind of run.
  Controllers controllers_;
  OneHost one_host_;
  Takeover takeover_;
  LauncherTable launchers_;
  Lines lines_;
  NodeProcesses ranks_;
  Seats seats_;
  Followers followers_;
  Electors electors_;
  ElectedHosts elected_hosts_;
  // What strikes them.
  NodeFaults node_faults_;
  MemoryFaults memory_faults_;
  ProcessFaults process_faults_;
  TrainerFaults trainer_faults_;
  ConnectionFaults connection_faults_;
  Faults faults_;
};

}  // namespace kintsugi::sim
