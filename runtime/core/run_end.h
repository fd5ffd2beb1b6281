// RunEnd: how a run ends: with which exit code, which last words, and what of it is kept.
//
// Threads: none.
// Errors: a second end is a failed CHECK (no transition leaves ENDED).
// Invariants: every rank that is there is told of the end, every process on its way is ended; exit code 75 is given
// only where there is a checkpoint to come back to.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/board.h"
#include "runtime/core/checkpoint_list.h"
#include "runtime/core/repeats.h"

namespace kintsugi::core {

class RunEnd {
 public:
  RunEnd(Board& board, const CheckpointList& checkpoints, const Repeats& repeats)
      : board_(board), checkpoints_(checkpoints), repeats_(repeats) {}

  void End(int exit_code, const std::string& text);
  // Nothing can be saved any more: what there is to come back to is the newest checkpoint.
  void EndWithoutSave(const std::string& why);
  // Nobody was in its loop yet: nothing is lost but the time.
  void EndUnbegun(const std::string& why);
  // A rank's program broke a rule of the library: what it has is not saved as if it were good.
  void EndRefused(Rank rank, const FaultReport& refusal);
  // All have finished, and their replicas agreed on this.
  void EndFinished(uint64_t final_digest);
  // All have finished, and what their replicas hold says nothing of the last step.
  void EndNotCompared(const std::string& why);
  // The rank may have missed the end with its connection.
  void TellAgain(Rank rank);

 private:
  Step CommittedStep(int exit_code) const;

  Board& board_;
  const CheckpointList& checkpoints_;
  const Repeats& repeats_;
  std::optional<uint64_t> final_digest_;
  std::string not_compared_;
  RunEnded ended_;
};

}  // namespace kintsugi::core
