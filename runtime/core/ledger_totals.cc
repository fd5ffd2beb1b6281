#include "runtime/core/ledger_totals.h"

#include <algorithm>
#include <bit>

namespace kintsugi::core {

void LedgerTotals::AddReporter(Rank rank) {
  const auto at = static_cast<size_t>(rank.value());
  if (reporters.size() <= at / 8) reporters.resize(at / 8 + 1, '\0');
  reporters[at / 8] = static_cast<char>(static_cast<unsigned char>(reporters[at / 8]) | (1u << (at % 8)));
}

bool LedgerTotals::HasReporter(Rank rank) const {
  const auto at = static_cast<size_t>(rank.value());
  return reporters.size() > at / 8 && ((static_cast<unsigned char>(reporters[at / 8]) >> (at % 8)) & 1u) != 0;
}

uint64_t LedgerTotals::reporter_count() const {
  uint64_t count = 0;
  for (char bits : reporters) count += static_cast<uint64_t>(std::popcount(static_cast<unsigned char>(bits)));
  return count;
}

void LedgerTotals::AddLoss(double loss) {
  last_loss = loss;
  if (steps++ % curve_every != 0) return;
  if (curve.size() == kCurveMax) {
    for (size_t i = 0; 2 * i < curve.size(); ++i) curve[i] = curve[2 * i];
    curve.resize((curve.size() + 1) / 2);
    curve_every *= 2;
    if ((steps - 1) % curve_every != 0) return;
  }
  curve.push_back(loss);
}

void LedgerTotals::TakeNote() {
  std::erase_if(notes, [this](const Note& note) { return note.step >= step; });
  if (notes.size() == kNotesMax) notes.erase(notes.begin());
  notes.push_back({step, steps, samples, digest, reports, last_loss});
}

void LedgerTotals::GoBackTo(const Note& note) {
  const Note to = note;  // it may be one of those that go
  step = to.step;
  steps = to.steps;
  samples = to.samples;
  digest = to.digest;
  reports = to.reports;
  last_loss = to.last_loss;
  curve.resize(std::min<size_t>(curve.size(), (steps + curve_every - 1) / curve_every));
  std::erase_if(notes, [&](const Note& one) { return one.step > step; });
}

}  // namespace kintsugi::core
