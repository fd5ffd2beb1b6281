// Agents: the driver of each process's AgentCore: its connection, frames in, actions out. Mirrors runtime/agent.
//
// Threads: none.
// Ownership: of nothing; cores and connections are their processes' and the network's.
// Errors: a frame that cannot be read is refused; an order of an older term that is obeyed is a broken promise.
// Invariants: an agent without a controller tries again, and ends when that has lasted too long.
#pragma once

#include <string>

#include "runtime/sim/handlers.h"
#include "runtime/sim/held_memory.h"
#include "runtime/sim/network.h"
#include "runtime/sim/processes.h"
#include "runtime/sim/relayouts.h"
#include "runtime/sim/snapshots.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/table_checker.h"
#include "runtime/sim/trainers.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

// Where an agent that has no connection finds a controller.
class Directory {
 public:
  struct Answer {
    bool waits = false;    // there is none yet, and no limit to the wait
    bool refused = false;  // nobody listens there: it counts against the limit
    Seat* seat = nullptr;  // where there are several
  };
  virtual Answer ControllerOf(const Process* p) = 0;

 protected:
  ~Directory() = default;
};

class Agents final : public AgentInbox, public AgentEnds {
 public:
  Agents(World& world, StateChecker& states, TableChecker& tables, HeldMemory& held, Network& network,
         Collectives& collectives, Snapshots& snapshots, Trainers& trainers, Relayouts& relayouts, Handlers& handlers,
         Processes& processes, Directory& directory)
      : world_(world),
        state_checker_(states),
        table_checker_(tables),
        held_(held),
        network_(network),
        collectives_(collectives),
        snapshots_(snapshots),
        trainers_(trainers),
        relayouts_(relayouts),
        handlers_(handlers),
        processes_(processes),
        directory_(directory) {}

  void Connect(Process* p);
  void Step(Process* p, AgentEvent event) override;
  void OnFrame(Process* p, const std::string& bytes) override;
  // The agent's end is gone, by whatever it took for the other's word.
  void OnLost(Connection* connection) override;

 private:
  void TryConnect(Process* p);
  void OnJoinReply(Process* p, const Header& header, const JoinReply& reply);
  void BeginTrainer(Process* p);
  // What it registers, told again after its connection was lost.
  void SetReady(Process* p) const;
  void Act(Process* p, const AgentAction& action);
  void LockGate(Process* p);
  void Stop(Process* p, const StopOrder& order);
  void AwaitPark(Process* p, Generation generation, TimePoint freed_at);
  void TakeRelease(Process* p);

  World& world_;
  StateChecker& state_checker_;
  TableChecker& table_checker_;
  HeldMemory& held_;
  Network& network_;
  Collectives& collectives_;
  Snapshots& snapshots_;
  Trainers& trainers_;
  Relayouts& relayouts_;
  Handlers& handlers_;
  Processes& processes_;
  Directory& directory_;
};

}  // namespace kintsugi::sim
