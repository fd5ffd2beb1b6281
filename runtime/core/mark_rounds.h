// MarkRounds: a question to all ranks, what their groups did and where they stand; and what is made of the answers.
//
// Nothing is sent before somebody waits. A round ends when all have answered, or at its limit with those that have.
// Threads: none.
// Invariants: one round at a time; an answer to an older one is dropped.
#pragma once

#include <map>
#include <optional>

#include "runtime/core/blame.h"
#include "runtime/core/board.h"
#include "runtime/core/processes.h"

namespace kintsugi::core {

class MarkRounds {
 public:
  MarkRounds(Board& board, const Processes& processes) : board_(board), processes_(processes) {}

  bool open() const { return question_.has_value(); }
  // `still`: for so long nobody has moved. `waits`: as BlameQuestion's. `gone`: its process has ended.
  void Ask(Duration still, bool waits, std::optional<Rank> gone = {});
  void OnMarks(Rank rank, const RankMarks& marks);
  // What the answers say, once: all are there, or the round's limit has passed.
  std::optional<Blame> Take();

 private:
  struct Question {
    BlameQuestion about;
    std::map<Rank, size_t> expected;  // those that are asked and have not answered: their places in `about`
    std::map<Rank, Incarnation> asked;  // of those that were asked
    TimePoint until;
  };
  Board& board_;
  const Processes& processes_;
  std::optional<Question> question_;
  uint64_t round_ = 0;
};

}  // namespace kintsugi::core
