// Scaling: how many ranks are to take part, by somebody's word: seats that are empty get processes again, or ranks that are well
// leave.
//
// Newcomers start, register and wait beside the run, of which nobody else hears: what becomes of them costs it nothing. Once all
// are ready all ranks meet at the end of a step, and the crew is changed there as in any other incident (Halt). An order that cannot
// be carried out is refused with the reason, at once or when that shows, and the run goes on as it was.
//
// Over several hosts nobody has to ask for ranks whose node comes back (EmptyPlaces): the order is given here, as far as somebody's
// last word allows it, and gives way to the next word.
//
// Threads: none.
// Errors: what is refused is a sentence.
// Invariants: one order at a time; each is met or refused; a newcomer lives as long as its order, or is of the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/empty_places.h"
#include "runtime/core/processes.h"
#include "runtime/core/survey.h"

namespace kintsugi::core {

class Scaling {
 public:
  Scaling(Board& board, Processes& processes, const Survey& survey);

  // Empty: so many ranks may be asked for.
  std::string WhyNot(int ranks) const;
  // REQUIRES: WhyNot(ranks) is empty. Newcomers are started.
  void Ask(int ranks);
  bool waits() const { return order_.has_value(); }
  // How many are to take part, by somebody's last word that was met; 0: nobody said.
  int wanted() const { return wanted_; }
  // All empty places whose nodes are away.
  void TellAway(const std::vector<Rank>& ranks);
  // Now and then: where places can be filled again, that is asked for.
  void Refill();
  // Why the crew is changed. REQUIRES: waits().
  std::string Why() const;
  // A process of this seat is on its way into the run, and not of it yet.
  bool IsComing(Rank rank) const;
  // Whom a process of this rank is told to take part with. REQUIRES: it does, or is coming.
  const Crew& CrewFor(Rank rank) const { return IsComing(rank) ? order_->crew : board_.members.kept(); }
  // Nothing but the end of a step lacks.
  bool IsDue() const;
  // With IsDue: what was asked for, where it can still be had; else it is refused now.
  AskedWorld TakeWanted();
  // Nobody came, or no boundary, for as long as that may take.
  bool IsLate() const { return waits() && board_.now() >= order_->until; }

  // A newcomer has registered: whether it fits shows once all have.
  void OnReady(Rank rank);
  // REQUIRES: it is coming. Its process has ended, or is of no use.
  void OnLost(Rank rank, const std::string& why);
  // REQUIRES: no attempt with the crew that was asked for is under way.
  void Refuse(const std::string& why);
  // Why what is late is.
  std::string WhyLate() const;
  // They take no part any more, and their processes are what is left of them.
  void OnLeaving(const std::vector<Rank>& ranks);
  // The run has another crew from now on: the one that was asked for, or the order is of a world that is no more.
  void OnCrewKept();

 private:
  struct Order {
    int ranks = 0;
    Crew before, crew;
    std::vector<Rank> coming;  // ascending; none: others leave
    TimePoint until;
    bool by_itself = false;  // nobody asked
  };
  std::string WhyNotNow() const;
  Result<Crew> Find(int ranks) const;
  Result<Crew> FindMore(int ranks, const OfferedWorlds& offered, bool by_itself) const;
  std::string WhyNotFree(Rank rank) const;
  void Begin(int ranks, const Crew& crew, bool by_itself);
  void Drop(const std::string& why);
  bool AllReady() const;
  std::string WhyUnfit() const;

  Board& board_;
  Processes& processes_;
  const Survey& survey_;
  EmptyPlaces places_;
  int wanted_;
  std::optional<Order> order_;
  std::string told_;  // why empty places are not filled, the last time
};

}  // namespace kintsugi::core
