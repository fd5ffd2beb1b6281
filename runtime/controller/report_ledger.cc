#include "runtime/controller/report_ledger.h"

#include <algorithm>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/check.h"

namespace kintsugi {

core::SampleSum SumOf(std::span<const uint64_t> ids) { return {ids.size(), XXH64(ids.data(), ids.size_bytes(), 0)}; }

ReportLedger::ReportLedger(Step before, int ranks, core::LedgerTotals folded)
    : before_(folded.step > 0 ? folded.step - folded.steps : before.value()),
      ranks_(static_cast<size_t>(ranks)),
      folded_(std::move(folded)) {
  KINTSUGI_CHECK(ranks > 0, "a ledger of no ranks");
  folded_.step = start_ = std::max(folded_.step, before_);
}

void ReportLedger::Stands(Rank rank, Step step) {
  if (leader_ && rank != *leader_ && step.value() <= leader_at_) {
    next_ = std::max(next_.value_or(0), step.value());
    return;
  }
  if (leader_ && rank != *leader_) next_ = leader_at_;
  leader_ = rank;
  leader_at_ = std::max(leader_at_, step.value());
}

uint64_t ReportLedger::FarthestBut(Rank rank) const {
  return std::max(before_, rank == leader_ ? next_.value_or(leader_at_) : leader_at_);
}

bool ReportLedger::Record(Rank rank, Step step, double loss, const core::SampleSum& samples) {
  // Differences, since a place may be any number. Until others have told where they stand, the start says it.
  const uint64_t farthest = std::max(FarthestBut(rank), start_);
  if (step.value() <= before_ || (step.value() > farthest && step.value() - farthest > kAhead)) {
    ++refused_;
    return false;
  }
  if (step.value() <= folded_.step) return true;  // told twice
  KINTSUGI_CHECK(rank.value() >= 0, "a report of rank " + rank.ToString());
  Row& row = rows_[step.value()];
  const auto at = static_cast<size_t>(rank.value());
  if (row.ranks.size() <= at) row.ranks.resize(at + 1);
  const bool news = !row.ranks[at].there;
  row.ranks[at] = {loss, samples, true};
  if (!news) return true;
  folded_.AddReporter(rank);
  if (++row.count >= ranks_) complete_ = std::max(complete_, step.value());
  Fold();
  return true;
}

// The lowest steps, as long as all are far beyond them.
void ReportLedger::Fold() {
  while (!rows_.empty()) {
    KINTSUGI_CHECK(rows_.begin()->first > folded_.step, "a report is kept and in the sums");
    const uint64_t step = folded_.step + 1;
    if (step + kLag > complete_ && rows_.size() <= RowsMax(ranks_)) return;
    // A gap, of which nobody told, is passed over as fast as the rest.
    const auto row = rows_.find(step);
    FoldRow(step, row == rows_.end() ? nullptr : &row->second, &folded_);
    if (row != rows_.end()) rows_.erase(row);
    if (to_note_.erase(step) > 0) folded_.TakeNote();
  }
}

void ReportLedger::FoldRow(uint64_t step, const Row* row, core::LedgerTotals* into) const {
  KINTSUGI_CHECK(step > into->step, "step " + std::to_string(step) + " counts twice");
  const std::vector<bool> absent = AbsentIn(step);
  std::optional<double> loss;
  for (size_t rank = 0; row != nullptr && rank < row->ranks.size(); ++rank) {
    const Entry& entry = row->ranks[rank];
    if (!entry.there || (rank < absent.size() && absent[rank])) continue;
    if (!loss) loss = entry.loss;
    const uint64_t words[] = {into->digest, step, rank, entry.samples.digest, entry.samples.count};
    into->digest = XXH64(words, sizeof words, 0);
    into->samples += entry.samples.count;
    ++into->reports;
  }
  into->AddLoss(loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  into->step = step;
}

void ReportLedger::SetCrew(Step after, size_t ranks, const std::vector<Rank>& left, const std::vector<Rank>& came) {
  ranks_ = ranks;
  if (!left.empty() || !came.empty()) changes_.push_back({after.value(), left, came});
}

std::vector<bool> ReportLedger::AbsentIn(uint64_t step) const {
  std::vector<bool> absent;
  const auto mark = [&absent](const std::vector<Rank>& ranks, bool as) {
    for (Rank rank : ranks) {
      const auto at = static_cast<size_t>(rank.value());
      if (absent.size() <= at) absent.resize(at + 1);
      absent[at] = as;
    }
  };
  for (const CrewChange& change : changes_)
    if (change.after < step) mark(change.left, true), mark(change.came, false);
  return absent;
}

uint64_t ReportLedger::LeftOut(const core::LedgerTotals& sums, uint64_t committed) const {
  int64_t left_out = 0;
  const auto told = [&](const std::vector<Rank>& ranks) {
    return std::count_if(ranks.begin(), ranks.end(), [&](Rank rank) { return sums.HasReporter(rank); });
  };
  for (const CrewChange& change : changes_)
    if (committed > change.after)
      left_out += (told(change.left) - told(change.came)) * static_cast<int64_t>(committed - change.after);
  return static_cast<uint64_t>(std::max<int64_t>(0, left_out));
}

void ReportLedger::MayGoBackTo(Step step) {
  if (step.value() == folded_.step) return folded_.TakeNote();
  if (step.value() < folded_.step) return;
  to_note_.insert(step.value());
  if (to_note_.size() > core::LedgerTotals::kNotesMax) to_note_.erase(to_note_.begin());
  KINTSUGI_CHECK(to_note_.size() <= core::LedgerTotals::kNotesMax, "steps to note add up");
}

void ReportLedger::Rewind(uint64_t step, core::LedgerTotals* totals) const {
  core::LedgerTotals::Note back{.step = before_, .last_loss = std::numeric_limits<double>::quiet_NaN()};
  for (const core::LedgerTotals::Note& note : totals->notes)
    if (note.step <= step) back = note;
  totals->GoBackTo(back);
}

void ReportLedger::GoBackTo(Step step) {
  // What is done again is done by those that take part now.
  for (CrewChange& change : changes_) change.after = std::min(change.after, std::max(step.value(), before_));
  if (step.value() >= folded_.step) {
    // They are told anew; of one that is left out from here on nobody tells.
    rows_.erase(rows_.upper_bound(step.value()), rows_.end());
    complete_ = std::min(complete_, step.value());
    return;
  }
  // To a step that nobody noted the sums cannot go back: those steps are done again as they were, and counted once.
  const auto& notes = folded_.notes;
  if (step.value() != before_ &&
      std::none_of(notes.begin(), notes.end(), [&](const auto& n) { return n.step == step.value(); }))
    return;
  Rewind(step.value(), &folded_);
  rows_.clear();
  to_note_.clear();
  complete_ = folded_.step;
}

ReportLedger::Totals ReportLedger::Committed(Step committed) const {
  core::LedgerTotals sums = folded_;
  if (committed.value() < sums.step) Rewind(committed.value(), &sums);
  for (uint64_t step = sums.step + 1; step <= committed.value(); ++step) {
    const auto row = rows_.find(step);
    FoldRow(step, row == rows_.end() ? nullptr : &row->second, &sums);
  }
  Totals totals;
  totals.losses = std::move(sums.curve);
  totals.losses_every = sums.curve_every;
  if (sums.steps > 0) totals.final_loss = sums.last_loss;
  totals.samples_consumed = sums.samples;
  totals.samples_digest = sums.digest;
  // Who reported only of steps that are not among these is not missed in them.
  const uint64_t expected = sums.reporter_count() * sums.steps;
  const uint64_t there = sums.reports + LeftOut(sums, committed.value());
  totals.missing = expected - std::min(expected, there);
  return totals;
}

std::optional<double> ReportLedger::LossOf(Step step) const {
  core::LedgerTotals sums{.step = step.value() - 1};
  const auto found = rows_.find(step.value());
  if (found == rows_.end()) return std::nullopt;
  FoldRow(step.value(), &found->second, &sums);
  return sums.reports > 0 ? std::optional(sums.last_loss) : std::nullopt;
}

uint64_t ReportLedger::SamplesOf(Step step) const {
  core::LedgerTotals sums{.step = step.value() - 1};
  const auto found = rows_.find(step.value());
  if (found != rows_.end()) FoldRow(step.value(), &found->second, &sums);
  return sums.samples;
}

}  // namespace kintsugi
