// ReportLedger: what ranks reported of each step, kept by the process that outlives them. A report is staged before the
// gate, so a rank that dies inside its update has already left it; it counts once its step is committed.
//
// A repeated report of (step, rank) replaces the earlier one: the step was abandoned and done again. Memory does not
// grow with the steps: once every rank has told of a step kLag further on, a step is folded into the totals, and of the
// losses a curve of at most kCurveMax points stays. A run can only go back that far where it has a checkpoint or a
// snapshot: at these steps the totals are noted.
// Invariants: a rank cannot make it grow by claiming steps that the run is far from: a report of a step more than
// kAhead beyond where any other rank stands, or of one from before the run began, is refused and counted; what is kept
// unfolded has a bound (RowsMax), also where ranks never report. Reports of folded steps, told twice, change nothing.
// Units: losses as the trainer gave them; a digest is XXH64 over (step, rank, sample ids) in that order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/ledger_totals.h"

namespace kintsugi {

// XXH64 over the ids.
core::SampleSum SumOf(std::span<const uint64_t> ids);

class ReportLedger {
 public:
  // Reports come by another road than places, and may be earlier by as many steps as fit into a beat.
  static constexpr uint64_t kAhead = 1 << 16;
  static constexpr uint64_t kLag = 64;
  // How many rows a world of so many ranks has at most.
  static size_t RowsMax(size_t ranks) { return std::max<size_t>(2 * kLag, (1 << 19) / std::max<size_t>(ranks, 64)); }

  // The run of so many ranks goes on after step `before`: 0, or the checkpoint that it began from. `folded`: of a run
  // that is taken over, what its leader had folded; that says where the run began, too.
  explicit ReportLedger(Step before = Step(), int ranks = 1, core::LedgerTotals folded = {});

  // Where a rank stands, as its signs of life tell.
  void Stands(Rank rank, Step step);
  // False: refused.
  bool Record(Rank rank, Step step, double loss, const core::SampleSum& samples);
  bool Record(Rank rank, Step step, double loss, std::span<const uint64_t> samples) {
    return Record(rank, step, loss, SumOf(samples));
  }
  // From the step after this one on, so many ranks take part. What those that left told of a later step, which was begun
  // with them and done again without, does not count, whenever it comes; nor are they missed.
  void SetCrew(Step after, size_t ranks, const std::vector<Rank>& left, const std::vector<Rank>& came);
  // A checkpoint or a snapshot of this step is there.
  void MayGoBackTo(Step step);
  // What was reported of later steps is void.
  void GoBackTo(Step step);

  struct Totals {
    // The losses of the steps 1, 1 + losses_every, ... of the range, by the lowest rank that reported; NaN: none did.
    std::vector<double> losses;
    uint64_t losses_every = 1;
    std::optional<double> final_loss;  // of the last step of the range
    uint64_t samples_consumed = 0;
    uint64_t samples_digest = 0;
    // Ranks that reported at all, times steps, without those that are there: reports that were lost on the way, as with
    // a node whose launcher and ranks ended together. What they said was consumed and is missing from the sums.
    uint64_t missing = 0;
  };
  // The steps from where the run began up to and including `committed`.
  Totals Committed(Step committed) const;
  Step began_after() const { return Step(before_); }
  // The newest step that any rank has staged, and the loss of the step before it: for progress lines.
  Step newest() const { return Step(rows_.empty() ? newest_folded() : rows_.rbegin()->first); }
  std::optional<double> LossOf(Step step) const;
  uint64_t SamplesOf(Step step) const;
  uint64_t refused() const { return refused_; }
  // All up to folded().step is in it, for a leader to come.
  const core::LedgerTotals& folded() const { return folded_; }
  // Steps that are not.
  size_t rows() const { return rows_.size(); }

 private:
  struct Entry {
    double loss = 0;
    core::SampleSum samples;
    bool there = false;
  };
  struct Row {
    std::vector<Entry> ranks;  // up to the highest that reported
    size_t count = 0;          // of entries that are there
  };
  // After this step these take no part any more, or take part again.
  struct CrewChange {
    uint64_t after;
    std::vector<Rank> left, came;
  };
  // Who takes no part in the step, by rank; up to the highest one that ever left.
  std::vector<bool> AbsentIn(uint64_t step) const;
  // So often a rank that told of some step at all took no part in one, up to `committed`.
  uint64_t LeftOut(const core::LedgerTotals& sums, uint64_t committed) const;
  uint64_t newest_folded() const { return folded_.step == before_ ? 0 : folded_.step; }
  // The farthest step that the others have told of; one that is alone has only its own word.
  uint64_t FarthestBut(Rank rank) const;
  void Fold();
  void FoldRow(uint64_t step, const Row* row, core::LedgerTotals* into) const;
  // `totals` as they were at the newest noted step that is not beyond `step`.
  void Rewind(uint64_t step, core::LedgerTotals* totals) const;

  uint64_t before_;
  size_t ranks_;
  std::vector<CrewChange> changes_;  // the oldest first
  uint64_t start_;                   // what was folded when this ledger began
  std::optional<Rank> leader_;       // who stood farthest so far,
  uint64_t leader_at_ = 0;           // where,
  std::optional<uint64_t> next_;     // and the farthest that anyone else stood; none: nobody else has told
  uint64_t refused_ = 0;
  core::LedgerTotals folded_;
  std::map<uint64_t, Row> rows_;
  uint64_t complete_ = 0;  // the newest step of which all ranks have told
  std::set<uint64_t> to_note_;
};

}  // namespace kintsugi
