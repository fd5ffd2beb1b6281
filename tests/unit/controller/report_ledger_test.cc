#include "runtime/controller/report_ledger.h"

#include <gtest/gtest.h>

#include <array>

namespace kintsugi {
namespace {

constexpr std::array<uint64_t, 3> kSamples = {7, 8, 9};

ReportLedger Complete(int ranks, uint64_t steps) {
  ReportLedger ledger;
  for (uint64_t step = 1; step <= steps; ++step)
    for (int rank = 0; rank < ranks; ++rank) ledger.Record(Rank(rank), Step(step), 0.5 / step, kSamples);
  return ledger;
}

TEST(ReportLedger, SumsUpTheCommittedStepsOnly) {
  const auto totals = Complete(2, 6).Committed(Step(1), Step(4));
  EXPECT_EQ(totals.losses, (std::vector<double>{0.25, 0.5 / 3, 0.125}));
  EXPECT_EQ(totals.samples_consumed, 3u * 2 * kSamples.size());
  EXPECT_EQ(totals.missing, 0u);
}

TEST(ReportLedger, ARepeatedReportCountsOnce) {
  ReportLedger ledger = Complete(2, 3);
  const auto before = ledger.Committed(Step(0), Step(3));
  ledger.Record(Rank(1), Step(2), 0.25, kSamples);
  const auto after = ledger.Committed(Step(0), Step(3));
  EXPECT_EQ(after.samples_digest, before.samples_digest);
  EXPECT_EQ(after.samples_consumed, before.samples_consumed);
  EXPECT_EQ(after.missing, 0u);
}

TEST(ReportLedger, CountsWhatIsMissing) {
  ReportLedger ledger;
  for (uint64_t step = 1; step <= 5; ++step)
    for (int rank = 0; rank < 3; ++rank)
      if (!(rank == 2 && step >= 4) && !(rank == 1 && step == 2)) ledger.Record(Rank(rank), Step(step), 1, kSamples);
  EXPECT_EQ(ledger.Committed(Step(0), Step(5)).missing, 3u);
  EXPECT_EQ(ledger.Committed(Step(0), Step(3)).missing, 1u);
  EXPECT_EQ(ledger.Committed(Step(0), Step(6)).missing, 6u);  // a step of which nobody told
}

TEST(ReportLedger, WhoNeverReportsIsNotMissed) {
  ReportLedger ledger;
  for (uint64_t step = 1; step <= 5; ++step) ledger.Record(Rank(0), Step(step), 1, kSamples);
  EXPECT_EQ(ledger.Committed(Step(0), Step(5)).missing, 0u);
  EXPECT_EQ(ReportLedger().Committed(Step(0), Step(5)).missing, 0u);
}

}  // namespace
}  // namespace kintsugi
