// Board: the ground that the controller's machines share: the phase and where a save stands, the generation, the
// members, the incident under way and how it is to be repaired, the instant, and what is said and ordered.
//
// A machine reads it and changes it through what is here; machines do not reach into each other. The parts that are
// open (`members`, `incident`, `plan`, `majority`, `registered`, `course`) are nobody's decision by themselves, or
// guard themselves.
//
// Threads: none.
// Errors: a transition outside of the two tables, a generation that goes back, a rank outside of the world, or an
// order to a rank that is not there is a failed CHECK.
// Invariants: a phase that goes to a step has one; a deadline is of the phase that set it, and ends with it; outside of
// RUNNING and CONFIRM a transition ends every wait; nothing is sent to a rank that is dead or not there yet.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/controller_types.h"
#include "runtime/core/incident_case.h"
#include "runtime/core/majority.h"
#include "runtime/core/policy.h"
#include "runtime/core/registrations.h"
#include "runtime/core/repair_plan.h"
#include "runtime/core/roster.h"
#include "runtime/core/save_state.h"

namespace kintsugi::core {

// Where the run stands as a whole.
struct Course {
  bool ever_ran = false;   // its ranks were in their loops
  bool listening = false;  // a controller that took it over: nothing is ordered yet
  bool leaving = false;    // a stop was asked for: what is held is saved, and nothing repaired any more
  TimePoint leave_by;      // with it: until when all must have left
  std::string given_up;    // why nothing is repaired any more, and what is held is saved to be resumed; empty: it is
  Step resume_step;        // where it last went on from
  TimePoint went_on_at;    // when
};

class Board {
 public:
  // REQUIRES: policy.Validate() is ok.
  Board(Policy policy, Term term);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const Policy policy;
  const Term term;
  Roster members;
  IncidentCase incident;
  RepairPlan plan;
  Majority majority;
  Registrations registered;
  Course course;

  const ReplicaMap& replicas() const { return registered.replicas(); }
  Member& At(Rank rank) { return members.At(rank); }
  const Member& At(Rank rank) const { return members.At(rank); }
  std::vector<Rank> LiveRanks() const;
  // Who is in the run once this attempt has brought it back: all that take part, but for those that only give away what
  // they hold.
  const Crew& NextCrew() const { return plan.relayout ? *plan.relayout : members.crew(); }
  // ... and lives.
  std::vector<Rank> LiveOfNextCrew() const;
  // Whether all that were asked for something have answered.
  bool NobodyWaits() const { return members.waiting() == 0; }

  TimePoint now() const { return now_; }
  void SetNow(TimePoint now) { now_ = now; }

  Phase phase() const { return phase_; }
  TimePoint phase_began() const { return phase_began_; }
  // Counts the transitions: what is of one phase alone ends when it moves.
  uint64_t transitions() const { return transitions_; }
  // Where a run begins; elsewhere SetPhase.
  void BeginIn(Phase phase);
  void SetPhase(Phase to, const std::string& reason);
  // Whether the run is going, or nothing has stopped it yet.
  bool InTraining() const { return phase_ == Phase::kRunning || phase_ == Phase::kConfirm; }
  Generation generation() const { return generation_; }
  // The next attempt's: without a majority the first one of this controller's own range.
  Generation NextGeneration() const;
  // It only grows.
  void RaiseGeneration(Generation to);
  // Until when the phase waits; Max: it waits for nothing.
  TimePoint deadline() const { return deadline_; }
  void SetDeadline(TimePoint deadline) { deadline_ = deadline; }

  SaveState save() const { return save_; }
  void SetSave(SaveState to);
  // A save's own: it outlives CONFIRM.
  TimePoint save_deadline() const { return save_deadline_; }
  void SetSaveDeadline(TimePoint deadline) { save_deadline_ = deadline; }

  // The incident under way has come to its end.
  void CloseIncident();

  // What was said and ordered since this was last asked.
  std::vector<ControllerAction> TakeActions() { return std::exchange(out_, {}); }
  bool silent() const { return out_.empty(); }
  void Act(ControllerAction action) { out_.push_back(std::move(action)); }
  // Something was refused or is worth a line.
  void Note(Rank rank, std::string text) { Act(Notice{rank, std::move(text)}); }
  void SendTo(Rank rank, ControllerMessage message);
  // One rank is asked, and waited for; the deadline is the caller's.
  void Ask(Rank rank, ControllerMessage message);
  // Asks each rank for make(rank) and waits for all of them: for the limit that the handlers have, and then for their
  // answer.
  template <typename Make>
  void Order(const std::vector<Rank>& ranks, Duration limit, Make make) {
    deadline_ = now_ + limit + policy.AnswerSlack();
    out_.reserve(out_.size() + ranks.size());
    for (Rank rank : ranks) Ask(rank, make(rank));
  }
  // A rank that was waited for has answered.
  void Heard(Rank rank, Phase phase);
  // A message that does not fit. The same of a rank again, as each beat of one that was given up, is told once.
  void Drop(Rank rank, const std::string& why);
  uint64_t dropped() const { return dropped_; }

 private:
  TimePoint now_;
  std::vector<ControllerAction> out_;
  Phase phase_ = Phase::kAdmit;
  TimePoint phase_began_;
  uint64_t transitions_ = 0;
  TimePoint deadline_ = TimePoint::Max();
  Generation generation_;
  SaveState save_ = SaveState::kNone;
  TimePoint save_deadline_ = TimePoint::Max();
  uint64_t dropped_ = 0;
  std::map<Rank, std::string> told_dropped_;  // of members: why, the last time
};

}  // namespace kintsugi::core
