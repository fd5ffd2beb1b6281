// InexactList: what ranks said that is not as an undisturbed run would have it, each sentence once: a rank says all of it
// again on a new connection.
//
// Threads: none.
// Invariants: so many sentences are compared with those to come; what a run says beyond them is told as often as it is said.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "runtime/core/board.h"

namespace kintsugi::core {

class InexactList {
 public:
  explicit InexactList(Board& board) : board_(board) {}

  void Note(Rank rank, const std::string& text) {
    if (said_.count({rank, text}) > 0) return;
    if (said_.size() < kKept) said_.emplace(rank, text);
    board_.Act(InexactNews{rank, text});
  }

 private:
  static constexpr size_t kKept = 4096;
  Board& board_;
  std::set<std::pair<Rank, std::string>> said_;
};

}  // namespace kintsugi::core
