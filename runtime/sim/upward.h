// What parts of a process ask of those above them: the few calls that go the other way.
//
// Threads: none.
// Ownership: of nothing; who implements one outlives those that call it.
#pragma once

#include "runtime/core/agent_core.h"
#include "runtime/core/controller_types.h"
#include "runtime/sim/process.h"

namespace kintsugi::sim {

// A process's agent hears of its trainer, and acts at once.
class AgentInbox {
 public:
  virtual void Step(Process* p, AgentEvent event) = 0;

 protected:
  ~AgentInbox() = default;
};

// The handler that a parked trainer runs is done.
class HandlerEnd {
 public:
  virtual void Finish(Process* p, PhaseDone done) = 0;

 protected:
  ~HandlerEnd() = default;
};

// A process ends itself.
class ProcessEnd {
 public:
  virtual void Die(Process* p, const std::string& cause) = 0;

 protected:
  ~ProcessEnd() = default;
};

// A trainer has come to another place of its loop.
class TrainerWatch {
 public:
  virtual void OnTrainerAt(Process* p) = 0;

 protected:
  ~TrainerWatch() = default;
};

// The controller that is looked at has entered a phase.
class PhaseWatch {
 public:
  virtual void OnPhase(Phase phase) = 0;

 protected:
  ~PhaseWatch() = default;
};

// The controller that is looked at hears of something, and acts at once.
class ControllerInbox {
 public:
  virtual void Feed(ControllerEvent event) = 0;

 protected:
  ~ControllerInbox() = default;
};

}  // namespace kintsugi::sim
