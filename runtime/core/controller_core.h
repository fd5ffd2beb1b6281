// ControllerCore: the one decision maker, as a pure state machine. Step(event, now) returns what is to be done; the
// same object runs in production and in the simulator.
//
// It builds the machines that decide and tells each what it has to know; they share a Board, and each knows only
// those that stand before it below. One question goes the other way: a machine that finds a fault asks for the
// NextAttempt.
//
// Threads: none; one driver steps it. Time: monotonic instants come in as arguments, nothing is read.
// Ownership: of all machines; it stays where it was built.
// Errors: a message that does not fit (older generation, unknown incarnation, wrong phase) is dropped and counted. A
// transition outside the tables is a failed CHECK.
// Invariants: one generation per attempt; every wait has a deadline; a rank whose state is not known to be that of S
// is in `needs_repair` until VERIFY has passed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/attendance.h"
#include "runtime/core/controller_types.h"
#include "runtime/core/halt.h"
#include "runtime/core/machines.h"
#include "runtime/core/policy.h"
#include "runtime/core/takeover.h"

namespace kintsugi::core {

class ControllerCore {
 public:
  // REQUIRES: policy.Validate() is ok.
  ControllerCore(Policy policy, Term term);

  // Begins the run: spawns every rank where the policy says so and waits for all to be ready.
  std::vector<ControllerAction> Start(TimePoint now);
  std::vector<ControllerAction> Step(const ControllerEvent& event, TimePoint now);

  using Life = core::Life;
  using Member = core::Member;
  Phase phase() const { return parts_.board.phase(); }
  Generation generation() const { return parts_.board.generation(); }
  Term term() const { return parts_.board.term; }
  // Of every seat, by rank; who takes part says `crew`.
  const std::vector<Member>& members() const { return parts_.board.members.all(); }
  // Who takes part as the run last went on.
  const Crew& crew() const { return parts_.board.members.kept(); }
  const Policy& policy() const { return parts_.board.policy; }
  uint64_t incidents() const { return parts_.board.incident.count(); }
  int ranks_ready() const { return parts_.board.members.ready(); }
  // The one under way; nothing: none is.
  const std::optional<IncidentRecord>& incident() const { return parts_.board.incident.current(); }
  // How far a slow rank is behind the others; nothing for a rank that is not slow.
  std::optional<Duration> LateBy(Rank rank) const { return parts_.hangs.LateBy(rank); }
  const SnapshotRounds& snapshots() const { return parts_.rounds; }
  // Empty: an operator may have a new process for this rank.
  std::string WhyNotReplaced(Rank rank) const { return parts_.saves.replacements().WhyNot(rank); }
  // ... may have the node of these ranks drained.
  std::string WhyNotDrained(Rank first, int ranks) const {
    return parts_.saves.replacements().WhyNotDrained(first, ranks);
  }
  // ... may have so many ranks take part.
  std::string WhyNotScaled(int ranks) const { return parts_.scaling.WhyNot(ranks); }
  // That was asked for, and is not so yet.
  bool scales() const { return parts_.scaling.waits(); }
  // How many are to take part, by what somebody asked for last; 0: nobody did.
  int ranks_wanted() const { return parts_.scaling.wanted(); }
  // Where ranks park, what was asked for, and the step at which all stand, once they do.
  const Saves& saves() const { return parts_.saves; }
  // Still listening to what it took over.
  bool taking_over() const { return parts_.board.course.listening; }
  // No majority was to be had: what is here saves and leaves.
  bool minority() const { return parts_.board.majority.minority(); }
  // The run waits for nothing but the processes of these ranks, and has all it needs to begin them on another node.
  bool MayMove(Rank first, int ranks) const { return parts_.recovery.MayMove(first, ranks); }
  // ... and can go on without these.
  bool MayDoWithout(Rank first, int ranks) const { return attendance_.MayDoWithout(first, ranks); }
  // The rank maps what is held of the process before it, as this attempt has chosen.
  bool Adopts(Rank rank) const { return parts_.board.plan.Adopts(rank); }
  uint64_t dropped_messages() const { return parts_.board.dropped(); }
  // Whatever is waited for has a deadline; in RUNNING nothing need be waited for. True after every step.
  bool WaitsAreBounded() const;
  // Armed faults handed to a rank when it joins. The driver keeps the ledger.
  void SetInjections(Rank rank, std::vector<std::string> injections) {
    parts_.board.At(rank).injections = std::move(injections);
  }

 private:
  void OnMessage(const Header& header, const AgentMessage& message);
  // The message fits: it is of the living process, in this term and, where that matters, of this generation.
  void OnFitting(const Header& header, const AgentMessage& message, bool current);
  // Of a process that is on its way into the run.
  void OnNewcomer(Rank rank, const AgentMessage& message);
  void OnPhaseDone(Rank rank, const PhaseDone& done);
  void OnFinished(Rank rank, const Finished& finished);
  void OnGateEntered(Rank rank, kintsugi::Step step);
  void OnTick();
  void OnDeadline();
  void OnSaveDeadline();

  // Each knows some of those before it; what the machines ask for, `halt_` answers.
  Machines parts_;
  Halt halt_;
  RunTakeover takeover_;
  Attendance attendance_;
};

}  // namespace kintsugi::core
