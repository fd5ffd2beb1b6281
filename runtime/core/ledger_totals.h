// LedgerTotals: what a ledger keeps of the steps that it has folded. A value: one leader hands it to the next.
//
// Invariants: at most kCurveMax losses and kNotesMax notes, however many steps they stand for.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace kintsugi::core {

// The samples that a rank consumed in a step, without their names.
struct SampleSum {
  uint64_t count = 0;
  uint64_t digest = 0;  // XXH64 over the ids
  bool operator==(const SampleSum&) const = default;
};

struct LedgerTotals {
  static constexpr size_t kCurveMax = 1 << 14;
  static constexpr size_t kNotesMax = 32;

  uint64_t step = 0;   // the newest that is in it
  uint64_t steps = 0;  // so many are in it
  uint64_t samples = 0;
  uint64_t digest = 0;
  uint64_t reports = 0;
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  std::string reporters;  // a bit for each rank, the lowest first, of those that reported
  uint64_t curve_every = 1;
  std::vector<double> curve;  // losses of the first step and of each curve_every-th after it
  // The sums at steps that the run may go back to.
  struct Note {
    uint64_t step = 0;
    uint64_t steps = 0;
    uint64_t samples = 0;
    uint64_t digest = 0;
    uint64_t reports = 0;
    double last_loss = 0;
    bool operator==(const Note&) const = default;
  };
  std::vector<Note> notes;  // the oldest first

  bool operator==(const LedgerTotals&) const = default;
  void AddReporter(Rank rank);
  bool HasReporter(Rank rank) const;
  uint64_t reporter_count() const;
  // The loss of the step after the newest.
  void AddLoss(double loss);
  void TakeNote();
  // Back to the note.
  void GoBackTo(const Note& note);
};

}  // namespace kintsugi::core
