// ReportLedger: what ranks reported of each step, kept by whoever outlives them. A report is staged before the gate, so a
// rank that dies inside its update has already left it; it counts once its step is committed.
//
// A repeated report of (step, rank) replaces the earlier one: the step was abandoned and done again.
// Invariants: a rank cannot make it grow by claiming steps that the run is far from: a report of a step more than kAhead
// beyond where any other rank stands, or of one from before the run began, is refused and counted.
// Units: losses as the trainer gave them; a digest is XXH64 over (step, rank, sample ids) in that order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi {

class ReportLedger {
 public:
  // Reports come by another road than places, and may be earlier by as many steps as fit into a beat.
  static constexpr uint64_t kAhead = 1 << 16;

  // The run goes on after step `before`: 0, or the checkpoint that it began from.
  explicit ReportLedger(Step before = Step()) : before_(before.value()) {}

  // Where a rank stands, as its signs of life tell.
  void Stands(Rank rank, Step step);
  // False: refused.
  bool Record(Rank rank, Step step, double loss, std::span<const uint64_t> samples);

  struct Totals {
    std::vector<double> losses;  // one per step of the range, of its lowest rank that reported; NaN where none did
    uint64_t samples_consumed = 0;
    uint64_t samples_digest = 0;
    // Ranks that reported at all, times steps, without those that are there: reports that were lost on the way, as with a
    // node whose launcher and ranks ended together. What they said was consumed and is missing from the sums.
    uint64_t missing = 0;
  };
  // The steps after `before` (0, or the checkpoint that the run began from) up to and including `committed`.
  Totals Committed(Step before, Step committed) const;
  // The newest step that any rank has staged, and the loss of the step before it: for progress lines.
  Step newest() const { return steps_.empty() ? Step() : Step(steps_.rbegin()->first); }
  std::optional<double> LossOf(Step step) const;
  uint64_t SamplesOf(Step step) const;
  uint64_t refused() const { return refused_; }

 private:
  struct Entry {
    double loss = 0;
    uint64_t samples = 0;
    uint64_t digest = 0;
  };
  // The farthest step that the others have told of; one that is alone has only its own word.
  uint64_t FarthestBut(Rank rank) const;

  const uint64_t before_;
  std::optional<Rank> leader_;    // who stood farthest so far,
  uint64_t leader_at_ = 0;        // where,
  std::optional<uint64_t> next_;  // and the farthest that anyone else stood; none: nobody else has told
  uint64_t refused_ = 0;
  std::map<uint64_t, std::map<Rank, Entry>> steps_;
};

}  // namespace kintsugi
