// CheckpointWriter: one save, from the choice of each shard's writer to the rank that makes it visible.
//
// WRITING until all writers have answered; then RENAMING until one rank has published. A save in which somebody failed
// ends when nobody writes any more.
//
// Threads: none.
// Errors: a rank that could not write or publish is told of, and asked last from then on. Told is the first failure that
//   is no echo of another writer's (kCancelled).
// Invariants: every distinct shard has one writer, that is in no doubt; what is published was written whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/board.h"
#include "runtime/core/checkpoint_list.h"

namespace kintsugi::core {

class CheckpointWriter {
 public:
  CheckpointWriter(Board& board, CheckpointList& checkpoints) : board_(board), checkpoints_(checkpoints) {}

  void Start(Step step, const IncidentFacts& facts);
  enum class Answer {
    kNotAwaited,
    kOthersToCome,  // to write, or to publish
    kLastFailed,    // of a save that is the run's last
    kEnded,         // it is published, or has failed
  };
  Answer Take(Rank rank, const PhaseDone& done, bool is_last);
  // The run is to leave: there is less time.
  void Hurry();
  // It took too long; in words. Who is only slow has all its time in the next one.
  std::string RanOut();
  Duration waited() const { return board_.now() - began_; }
  // An incident ends it.
  void Cancel();
  // A checkpoint became visible: told by its publisher, and known by its answer where that word was lost with the
  // connection.
  void OnPublished(Step step, const std::string& directory);

  // Of the newest one.
  Step step() const { return step_; }
  bool failed() const { return failed_; }
  const std::string& failure() const { return failure_.text; }
  // What became of it, for those who asked for it.
  SaveSettled Outcome() const { return failed_ ? failure_ : SaveSettled{step_, true, Rank(), ""}; }

 private:
  void AskToPublish();
  Duration BeginWait();
  Duration Limit() const;

  Board& board_;
  CheckpointList& checkpoints_;
  Step step_;
  std::vector<Rank> writers_;
  uint64_t bytes_ = 0;  // that they write
  TimePoint began_;     // what is waited for was asked for
  bool ran_out_ = false;
  bool failed_ = false;
  bool echoes_only_ = false;  // of failures, so far
  SaveSettled failure_;       // with failed_
};

}  // namespace kintsugi::core
