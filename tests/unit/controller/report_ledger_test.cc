#include "runtime/controller/report_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "runtime/base/random.h"

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

TEST(ReportLedger, RefusesStepsThatNoOtherRankIsNear) {
  constexpr uint64_t kFar = 100 + ReportLedger::kAhead;
  ReportLedger ledger;
  for (int rank = 0; rank < 3; ++rank) ledger.Stands(Rank(rank), Step(90 + 5 * static_cast<uint64_t>(rank)));
  EXPECT_TRUE(ledger.Record(Rank(0), Step(kFar), 1, kSamples));  // rank 2 is at 100
  EXPECT_FALSE(ledger.Record(Rank(0), Step(kFar + 1), 1, kSamples));
  EXPECT_FALSE(ledger.Record(Rank(2), Step(kFar - 4), 1, kSamples));  // the next after it is at 95
  EXPECT_TRUE(ledger.Record(Rank(2), Step(kFar - 5), 1, kSamples));
  EXPECT_FALSE(ledger.Record(Rank(1), Step(~0ull), 1, kSamples));
  EXPECT_FALSE(ledger.Record(Rank(1), Step(0), 1, kSamples));
  EXPECT_EQ(ledger.refused(), 4u);
}

TEST(ReportLedger, ALiarCannotMoveItsOwnLimit) {
  ReportLedger ledger;
  for (int rank = 0; rank < 3; ++rank) ledger.Stands(Rank(rank), Step(7));
  uint64_t taken = 0;
  for (uint64_t jump = 1; jump < 100; ++jump) {
    ledger.Stands(Rank(1), Step(jump * ReportLedger::kAhead));
    taken += ledger.Record(Rank(1), Step(jump * ReportLedger::kAhead + 1), 1, kSamples);
  }
  ledger.Stands(Rank(1), Step(~0ull));
  taken += ledger.Record(Rank(1), Step(~0ull), 1, kSamples);
  EXPECT_EQ(taken, 1u);
  EXPECT_TRUE(ledger.Record(Rank(0), Step(8), 1, kSamples));
}

TEST(ReportLedger, AResumedRunBeginsWhereItBegins) {
  ReportLedger ledger{Step(5'000'000)};
  EXPECT_TRUE(ledger.Record(Rank(0), Step(5'000'001), 1, kSamples));  // before the first sign of life
  EXPECT_FALSE(ledger.Record(Rank(0), Step(5'000'000), 1, kSamples));
  EXPECT_FALSE(ledger.Record(Rank(0), Step(5'000'001 + ReportLedger::kAhead), 1, kSamples));
}

TEST(ReportLedger, OneRankAloneIsBelieved) {
  ReportLedger ledger;
  for (uint64_t step = 1; step < 4 * ReportLedger::kAhead; step += 1000) {
    ledger.Stands(Rank(0), Step(step));
    ASSERT_TRUE(ledger.Record(Rank(0), Step(step), 1, kSamples));
  }
}

// Against every rank's farthest place in a table.
TEST(ReportLedger, TheLimitIsWhatATableSays) {
  Random random(4);
  std::map<Rank, uint64_t> places;
  ReportLedger ledger;
  for (int turn = 0; turn < 20000; ++turn) {
    const Rank rank(static_cast<int32_t>(random.Below(4)));
    const uint64_t step = 1 + random.Below(3 * ReportLedger::kAhead);
    if (random.Below(2)) {
      ledger.Stands(rank, Step(step));
      places[rank] = std::max(places[rank], step);
      continue;
    }
    uint64_t farthest = 0;
    bool others = false;
    for (const auto& [other, place] : places) {
      if (other == rank) continue;
      farthest = std::max(farthest, place);
      others = true;
    }
    if (!others && places.count(rank)) farthest = places[rank];
    ASSERT_EQ(ledger.Record(rank, Step(step), 1, {}), step <= farthest + ReportLedger::kAhead) << turn;
  }
}

TEST(ReportLedger, WhoNeverReportsIsNotMissed) {
  ReportLedger ledger;
  for (uint64_t step = 1; step <= 5; ++step) ledger.Record(Rank(0), Step(step), 1, kSamples);
  EXPECT_EQ(ledger.Committed(Step(0), Step(5)).missing, 0u);
  EXPECT_EQ(ReportLedger().Committed(Step(0), Step(5)).missing, 0u);
}

}  // namespace
}  // namespace kintsugi
