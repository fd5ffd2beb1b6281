// TableChecker: the controller and the agents keep to the tables: transitions, generations, incarnations, budgets; who
// is obeyed and spoken to, who is innocent, what has bounds and moves (promises 4, 7, 9, 10, 11).
//
// Threads: none.
// Ownership: of what it has seen of each controller; it sees the world and changes nothing in it.
// Errors: what it finds goes to the sink.
// Invariants: it is told of every action before that is carried out.
#pragma once

#include <map>
#include <optional>

#include "runtime/sim/world.h"

namespace kintsugi::sim {

class TableChecker {
 public:
  TableChecker(const World& world, Violations& sink) : world_(world), sink_(sink) {}

  // The controller that is looked at is a new one, and takes over. `confirms`: the generation that a healed gap keeps.
  void BeginTakeover(std::optional<Generation> confirms);
  // ... and its launcher had heard that an operator wanted so many ranks.
  void TakeWord(int ranks) { Of().word = ranks; }
  // A block of ranks starts elsewhere: outside of the budget.
  void GiveBack(Rank first, int count);
  // Where the controller that is looked at stands, by its transitions that were carried out.
  Phase phase() { return Of().phase; }

  // Of the controller that is looked at.
  void CheckTransition(const Transition& transition);
  void CheckSpawn(Rank rank, Incarnation incarnation);
  void CheckSend(const Send& send);
  void CheckKill(const KillProcess& kill);
  // Nobody comes to the run against an operator's word.
  void CheckCrew(const core::CrewChanged& crew);
  void CheckIncident(const core::IncidentRecord& record);
  void CheckActions(size_t count);
  void CheckWaits();
  // Where the run is not over.
  void CheckProgress();
  // A rank acts by an order of that generation.
  void CheckObeyed(const Process& p, Generation generation, const char* what);
  // ... or of that term, which was older than one that it had heard of.
  void CheckRefused(const Process& p, bool refused, Term term);

 private:
  struct History {
    Phase phase = Phase::kAdmit;
    Generation lock_generation;
    std::optional<Generation> before_confirm;
    std::map<Rank, int> spawns;
    std::map<Rank, int> rescues;  // processes started only to save
    int word = 0;                 // so many ranks at most, by an operator; 0: nobody said
  };
  History& Of() { return histories_[&world_.seat()]; }

  const World& world_;
  Violations& sink_;
  std::map<const Seat*, History> histories_;
};

}  // namespace kintsugi::sim
