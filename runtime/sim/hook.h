// Hook: where a test binary may bend a run, to prove that the checkers can fail.
//
// The simulator's drivers call it around every step of a core. The library has no hook of its own: without one, nothing
// between a core and its world is altered. What a hook changes is a mutant of the guard on the other side, for example
// a message whose generation was rewritten to the current one is a fence that does not look.
#pragma once

#include <map>
#include <vector>

#include "runtime/core/agent_core.h"
#include "runtime/core/controller_core.h"
#include "runtime/core/election.h"
#include "runtime/core/refused_step.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

class Hook {
 public:
  virtual ~Hook() = default;

  // Before the controller sees `event`; what is put into `after` it sees right after it.
  virtual void BeforeController(const core::ControllerCore& /*core*/, core::ControllerEvent* /*event*/,
                                std::vector<core::ControllerEvent>* /*after*/) {}
  // Whatever goes into the controller's core, and what comes out.
  virtual void OnStart(TimePoint /*now*/, const std::vector<core::ControllerAction>& /*actions*/) {}
  virtual void OnStep(const core::ControllerEvent& /*event*/, TimePoint /*now*/,
                      const std::vector<core::ControllerAction>& /*actions*/) {}
  // Before its actions are carried out.
  virtual void AfterController(const core::ControllerCore& /*core*/, const core::ControllerEvent& /*cause*/,
                               std::vector<core::ControllerAction>* /*actions*/) {}
  virtual void BeforeAgent(Rank /*rank*/, const core::AgentCore& /*core*/, core::AgentEvent* /*event*/) {}
  virtual void AfterAgent(Rank /*rank*/, const core::AgentCore& /*core*/, const core::AgentEvent& /*cause*/,
                          std::vector<core::AgentAction>* /*actions*/) {}
  // Before the rendezvous store sees a write or a read of this sender.
  virtual void BeforeStore(Generation /*current*/, core::Header* /*header*/) {}
  // A launcher votes, says what its ranks are, and decides.
  virtual void OnVote(int /*node*/, int /*candidate*/, uint64_t /*term*/, bool* /*granted*/) {}
  virtual void OnLocalRanks(int /*node*/, core::ElectionCore::LocalRanks* /*ranks*/) {}
  virtual void OnElection(int /*node*/, core::ElectionCore::Decision* /*decision*/) {}
  // Whether a launcher keeps to itself what it was asked while nobody led.
  virtual bool ForgetsStop() { return false; }
  // Before a launcher learns from another one, or from its leader, where the ranks live.
  virtual void OnPlacement(int /*node*/, core::Placement* /*placement*/) {}
  // Whether a node's word for ranks that it has just taken over has weight before the run went on.
  virtual bool CountsAtOnce() { return false; }
  // Whether a launcher that takes over forgets how many ranks somebody asked for.
  virtual bool ForgetsWord() { return false; }
  // Whether a process that was not in the run yet has a vote of its own.
  virtual bool FreshVotes() { return false; }
  // Before a launcher judges by them what it holds of a process that has ended.
  virtual void BeforeHeld(core::LastWords* /*last*/) {}
  // A source died in mid-stream: whether the chunk that was on its way counts as received.
  virtual bool CountsLostChunk() { return false; }
  // Before pieces move where state is cut anew; and whether a launcher's memory is mapped in whatever layout it is.
  virtual void OnPieceMoves(std::vector<PieceMove>* /*moves*/) {}
  virtual bool AdoptsAnyLayout() { return false; }
  // Whether one that comes into the run goes on with what was kept of its object when it left.
  virtual bool KeepsOldObject() { return false; }
  // Before a rank takes over these seats' parts of every batch.
  virtual void OnParts(Rank /*rank*/, std::map<Rank, Object>* /*seats*/, const core::Crew& /*crew*/) {}
  // In-memory snapshots: whether a copy that the gate overtook counts as whole, and whether one of another step does.
  virtual bool CountsUnfinishedCopy() { return false; }
  virtual bool TakesAnyStep() { return false; }
  // Refused steps: before a rank learns what all have told of the one behind `standing`; whether one whose machine is to
  // blame gives way where nobody may come, and whether any number of steps is left out.
  virtual void OnStepNews(Rank /*rank*/, Step /*standing*/, core::StepNews* /*news*/) {}
  virtual bool GivesWayAnyhow() { return false; }
  virtual bool LeavesOutAnyNumber() { return false; }
};

}  // namespace kintsugi::sim
