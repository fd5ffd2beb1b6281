// Ground: what a machine of the controller stands on, with ranks that do nothing by themselves, so that each machine is
// tested alone: a test calls it, and looks at the board and at what it said and ordered.
//
// The machine above, which locks all ranks, is not there: what it is asked for is noted.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/core/machines.h"

namespace kintsugi::core {

class Ground : public Machines {
 public:
  // Four ranks, of which 0 and 2, and 1 and 3, hold the same.
  static Policy FourRanks();
  explicit Ground(Policy policy = FourRanks());

  // Every rank is ready and has registered; the run has not begun.
  void Gather();
  // ... and all are in their loops, from this step on.
  void Train(uint64_t step = 5);
  // To a phase of an incident that is proven, with all ranks to meet at `step`.
  void GoTo(Phase phase, uint64_t step = 5);
  // What is opened by a fault of rank 1.
  void OpenIncident(FaultKind kind = FaultKind::kProcessExit);
  void Pass(Duration duration) { board.SetNow(board.now() + duration); }

  // What was said and ordered since this was last asked.
  std::vector<ControllerAction> Take() { return board.TakeActions(); }
  template <typename T>
  static std::vector<T> Of(const std::vector<ControllerAction>& actions) {
    std::vector<T> found;
    for (const ControllerAction& action : actions)
      if (const auto* a = std::get_if<T>(&action)) found.push_back(*a);
    return found;
  }
  template <typename T>
  static std::vector<std::pair<Rank, T>> Sent(const std::vector<ControllerAction>& actions) {
    std::vector<std::pair<Rank, T>> found;
    for (const Send& send : Of<Send>(actions))
      if (const auto* m = std::get_if<T>(&send.message)) found.emplace_back(send.header.rank, *m);
    return found;
  }
  static PhaseDone Done(Phase phase) { return {.phase = phase}; }
  static PhaseDone Failed(Phase phase, StatusCode code) { return {.phase = phase, .code = code, .text = "told so"}; }
  static PhaseDone Digest(uint64_t digest) { return {.phase = Phase::kVerify, .digests = {{0, digest}}}; }
  Member& member(int rank) { return board.At(Rank(rank)); }

  // The machine above.
  class Asked : public NextAttempt {
   public:
    void Lock(const std::string& reason) override { reasons.push_back(reason); }
    std::vector<std::string> reasons;
  };

  Asked next;
};

}  // namespace kintsugi::core
