#include "runtime/controller/report_ledger.h"

#include <algorithm>
#include <limits>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kintsugi {

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

bool ReportLedger::Record(Rank rank, Step step, double loss, std::span<const uint64_t> samples) {
  // Differences, since a place may be any number.
  const uint64_t farthest = FarthestBut(rank);
  if (step.value() <= before_ || (step.value() > farthest && step.value() - farthest > kAhead)) {
    ++refused_;
    return false;
  }
  steps_[step.value()][rank] = {loss, samples.size(), XXH64(samples.data(), samples.size_bytes(), 0)};
  return true;
}

ReportLedger::Totals ReportLedger::Committed(Step before, Step committed) const {
  Totals totals;
  std::set<Rank> reporters;
  uint64_t reports = 0;
  for (uint64_t step = before.value() + 1; step <= committed.value(); ++step) {
    const auto found = steps_.find(step);
    if (found == steps_.end()) {
      totals.losses.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    totals.losses.push_back(found->second.begin()->second.loss);
    for (const auto& [rank, entry] : found->second) {
      const uint64_t words[] = {totals.samples_digest, step, static_cast<uint64_t>(rank.value()), entry.digest,
                                entry.samples};
      totals.samples_digest = XXH64(words, sizeof words, 0);
      totals.samples_consumed += entry.samples;
      reporters.insert(rank);
      ++reports;
    }
  }
  totals.missing = reporters.size() * totals.losses.size() - reports;
  return totals;
}

std::optional<double> ReportLedger::LossOf(Step step) const {
  const auto found = steps_.find(step.value());
  if (found == steps_.end() || found->second.empty()) return std::nullopt;
  return found->second.begin()->second.loss;
}

uint64_t ReportLedger::SamplesOf(Step step) const {
  const auto found = steps_.find(step.value());
  uint64_t samples = 0;
  if (found != steps_.end())
    for (const auto& [rank, entry] : found->second) samples += entry.samples;
  return samples;
}

}  // namespace kintsugi
