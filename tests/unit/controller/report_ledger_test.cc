#include "runtime/controller/report_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/random.h"

namespace kintsugi {
namespace {

constexpr std::array<uint64_t, 3> kSamples = {7, 8, 9};

ReportLedger Complete(int ranks, uint64_t steps) {
  ReportLedger ledger(Step(), ranks);
  for (uint64_t step = 1; step <= steps; ++step)
    for (int rank = 0; rank < ranks; ++rank) ledger.Record(Rank(rank), Step(step), 0.5 / step, kSamples);
  return ledger;
}

TEST(ReportLedger, SumsUpTheCommittedStepsOnly) {
  const auto totals = Complete(2, 6).Committed(Step(4));
  EXPECT_EQ(totals.losses, (std::vector<double>{0.5, 0.25, 0.5 / 3, 0.125}));
  EXPECT_EQ(totals.final_loss, 0.125);
  EXPECT_EQ(totals.samples_consumed, 4u * 2 * kSamples.size());
  EXPECT_EQ(totals.missing, 0u);
}

TEST(ReportLedger, ARepeatedReportCountsOnce) {
  ReportLedger ledger = Complete(2, 3);
  const auto before = ledger.Committed(Step(3));
  ledger.Record(Rank(1), Step(2), 0.25, kSamples);
  const auto after = ledger.Committed(Step(3));
  EXPECT_EQ(after.samples_digest, before.samples_digest);
  EXPECT_EQ(after.samples_consumed, before.samples_consumed);
  EXPECT_EQ(after.missing, 0u);
}

TEST(ReportLedger, CountsWhatIsMissing) {
  ReportLedger ledger(Step(), 3);
  for (uint64_t step = 1; step <= 5; ++step)
    for (int rank = 0; rank < 3; ++rank)
      if (!(rank == 2 && step >= 4) && !(rank == 1 && step == 2)) ledger.Record(Rank(rank), Step(step), 1, kSamples);
  EXPECT_EQ(ledger.Committed(Step(5)).missing, 3u);
  EXPECT_EQ(ledger.Committed(Step(3)).missing, 1u);
  EXPECT_EQ(ledger.Committed(Step(6)).missing, 6u);  // a step of which nobody told
}

// A step that was begun by all, and done again by those that stayed: only what these say of it counts.
TEST(ReportLedger, WhatIsToldWithoutThoseThatLeftCounts) {
  const auto report = [](ReportLedger* ledger, std::vector<int> ranks, uint64_t from, uint64_t to, double loss) {
    for (uint64_t step = from; step <= to; ++step)
      for (int rank : ranks) ledger->Record(Rank(rank), Step(step), loss / static_cast<double>(ranks.size()), kSamples);
  };
  const std::vector<Rank> gone = {Rank(0), Rank(1)};
  ReportLedger expected(Step(), 6);
  report(&expected, {0, 1, 2, 3, 4, 5}, 1, 2, 6);
  report(&expected, {2, 3, 4, 5}, 3, 9, 6);
  expected.SetCrew(Step(2), 4, gone, {});
  ReportLedger early(Step(), 6), late(Step(), 6);
  report(&early, {0, 1, 2, 3, 4, 5}, 1, 3, 6);  // step 3 is given up
  early.GoBackTo(Step(2));
  early.SetCrew(Step(2), 4, gone, {});
  report(&early, {2, 3, 4, 5}, 3, 9, 6);
  late.SetCrew(Step(2), 4, gone, {});  // who took over knows of it, and is told of step 3 by who kept it
  report(&late, {2, 3, 4, 5}, 3, 9, 6);
  report(&late, {0, 1}, 3, 3, 6);
  report(&late, {0, 1, 2, 3, 4, 5}, 1, 2, 6);
  for (const ReportLedger* ledger : {&expected, &early, &late}) {
    const auto totals = ledger->Committed(Step(9));
    EXPECT_EQ(totals.samples_consumed, (2u * 6 + 7 * 4) * kSamples.size());
    EXPECT_EQ(totals.losses, expected.Committed(Step(9)).losses);
    EXPECT_EQ(totals.samples_digest, expected.Committed(Step(9)).samples_digest);
    EXPECT_EQ(totals.missing, 0u);
    EXPECT_EQ(ledger->SamplesOf(Step(3)), 4 * kSamples.size());
    EXPECT_EQ(ledger->LossOf(Step(3)), 1.5);
  }
}

TEST(ReportLedger, ThoseThatComeAgainCountAgain) {
  ReportLedger ledger(Step(), 2);
  const auto both = [&](uint64_t step) {
    for (int rank : {0, 1}) ledger.Record(Rank(rank), Step(step), 1, kSamples);
  };
  both(1), both(2);
  ledger.SetCrew(Step(1), 1, {Rank(1)}, {});
  ledger.Record(Rank(0), Step(2), 1, kSamples);
  ledger.Record(Rank(0), Step(3), 1, kSamples);
  ledger.SetCrew(Step(3), 2, {}, {Rank(1)});
  both(4);
  EXPECT_EQ(ledger.Committed(Step(4)).samples_consumed, 6 * kSamples.size());
  EXPECT_EQ(ledger.Committed(Step(4)).missing, 0u);
  ledger.GoBackTo(Step(1));  // a checkpoint is loaded into the two that there are by now
  for (uint64_t step = 2; step <= 4; ++step) both(step);
  EXPECT_EQ(ledger.Committed(Step(4)).samples_consumed, 8 * kSamples.size());
  EXPECT_EQ(ledger.Committed(Step(4)).missing, 0u);
}

TEST(ReportLedger, WhatIsLeftOutBehindAStepThatTheRunGoesBackToDoesNotCount) {
  ReportLedger ledger(Step(), 2), plain(Step(), 2);
  const auto both = [&](ReportLedger* of, uint64_t step) {
    for (int rank : {0, 1}) of->Record(Rank(rank), Step(step), 1, kSamples);
  };
  for (uint64_t step = 1; step <= 5; ++step) both(&ledger, step);
  ledger.GoBackTo(Step(3));  // step 4 is passed by, and nothing is told of it
  both(&ledger, 5);
  for (uint64_t step : {1, 2, 3, 5}) both(&plain, step);
  EXPECT_EQ(ledger.Committed(Step(5)).samples_consumed, 8 * kSamples.size());
  EXPECT_EQ(ledger.Committed(Step(5)).samples_digest, plain.Committed(Step(5)).samples_digest);
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
    ASSERT_EQ(ledger.Record(rank, Step(step), 1, core::SampleSum()), step <= farthest + ReportLedger::kAhead) << turn;
  }
}

// ---- memory --------------------------------------------------------------------------------------------------------

// Every step that was ever reported, in a table: what the totals must say.
class Obvious {
 public:
  explicit Obvious(uint64_t before) : before_(before) {}
  void Record(Rank rank, uint64_t step, double loss, const core::SampleSum& samples) {
    table_[step][rank] = {loss, samples};
  }
  void GoBackTo(uint64_t step) { table_.erase(table_.upper_bound(step), table_.end()); }
  ReportLedger::Totals Committed(uint64_t committed) const {
    core::LedgerTotals sums{.step = before_};
    uint64_t ranks = 0;
    for (const auto& [step, row] : table_) ranks = std::max<uint64_t>(ranks, row.size());
    for (uint64_t step = before_ + 1; step <= committed; ++step) {
      const auto& row = table_.at(step);
      sums.AddLoss(row.begin()->second.first);
      for (const auto& [rank, entry] : row) {
        const uint64_t words[] = {sums.digest, step, static_cast<uint64_t>(rank.value()), entry.second.digest,
                                  entry.second.count};
        sums.digest = XXH64(words, sizeof words, 0);
        sums.samples += entry.second.count;
        ++sums.reports;
      }
    }
    return {sums.curve, sums.curve_every, sums.last_loss, sums.samples, sums.digest, ranks * sums.steps - sums.reports};
  }

 private:
  const uint64_t before_;
  std::map<uint64_t, std::map<Rank, std::pair<double, core::SampleSum>>> table_;
};

void MustAgree(const ReportLedger::Totals& found, const ReportLedger::Totals& expected) {
  // A curve that was longer once stays as coarse as it was then.
  ASSERT_EQ(found.losses_every % expected.losses_every, 0u);
  const uint64_t apart = found.losses_every / expected.losses_every;
  ASSERT_EQ(found.losses.size(), (expected.losses.size() + apart - 1) / apart);
  for (size_t i = 0; i < found.losses.size(); ++i) ASSERT_EQ(found.losses[i], expected.losses[i * apart]) << i;
  EXPECT_EQ(found.final_loss, expected.final_loss);
  EXPECT_EQ(found.samples_consumed, expected.samples_consumed);
  EXPECT_EQ(found.samples_digest, expected.samples_digest);
  EXPECT_EQ(found.missing, expected.missing);
}

// Steps in bursts, rank after rank, with abandoned steps, checkpoints, ways back to them, and new leaders.
TEST(ReportLedger, SaysWhatATableOfAllStepsSays) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int ranks = 1 + static_cast<int>(random.Below(4));
    const uint64_t before = random.Below(2) * 1000;
    auto ledger = std::make_unique<ReportLedger>(Step(before), ranks);
    Obvious table(before);
    uint64_t at = before;
    std::vector<uint64_t> checkpoints;
    for (int turn = 0; turn < 150; ++turn) {
      const uint64_t burst = 1 + random.Below(200);
      for (int rank = 0; rank < ranks; ++rank)
        for (uint64_t step = at + 1; step <= at + burst; ++step) {
          const core::SampleSum samples{1 + random.Below(3), random.Below(1u << 30)};
          const double loss = 1.0 / static_cast<double>(step) + rank;
          ASSERT_TRUE(ledger->Record(Rank(rank), Step(step), loss, samples));
          table.Record(Rank(rank), step, loss, samples);
          ledger->Stands(Rank(rank), Step(step));
        }
      at += burst;
      switch (random.Below(6)) {
        case 0:
          ledger->MayGoBackTo(Step(at));
          checkpoints.push_back(at);
          break;
        case 1:
          if (checkpoints.empty()) break;
          at = checkpoints.back();
          ledger->GoBackTo(Step(at));
          table.GoBackTo(at);
          break;
        case 2:
          at -= std::min<uint64_t>(at - before, 1);  // abandoned, and done again
          break;
        case 3:
          ASSERT_LE(ledger->rows(), ReportLedger::kLag + 200);
          break;
        default:
          break;
      }
      if (turn % 50 == 49 && at > before) {
        MustAgree(ledger->Committed(Step(at)), table.Committed(at));
        // Where a run ends that is to be resumed from its newest checkpoint.
        if (!checkpoints.empty() && checkpoints.back() <= at)
          MustAgree(ledger->Committed(Step(checkpoints.back())), table.Committed(checkpoints.back()));
      }
    }
  }
}

TEST(ReportLedger, TheNextLeaderGoesOnFromWhatWasFolded) {
  Obvious table(0);
  ReportLedger first(Step(), 2);
  std::vector<std::tuple<Rank, uint64_t, double, core::SampleSum>> kept;  // by nodes
  for (uint64_t step = 1; step <= 500; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      const core::SampleSum samples{1, step * 2 + static_cast<uint64_t>(rank)};
      first.Record(Rank(rank), Step(step), 0.5, samples);
      table.Record(Rank(rank), step, 0.5, samples);
      kept.emplace_back(Rank(rank), step, 0.5, samples);
    }
  ReportLedger next(Step(), 2, first.folded());
  ASSERT_GT(first.folded().step, 400u);
  // Told from the beginning, one rank after the other.
  for (int rank = 0; rank < 2; ++rank)
    for (const auto& [of, step, loss, samples] : kept)
      if (of == Rank(rank)) {
        ASSERT_TRUE(next.Record(of, Step(step), loss, samples));
      }
  MustAgree(next.Committed(Step(500)), table.Committed(500));
}

TEST(ReportLedger, ALongRunKeepsACurveOfBoundedLength) {
  ReportLedger ledger;
  constexpr uint64_t kSteps = 5 * core::LedgerTotals::kCurveMax + 77;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ledger.Stands(Rank(0), Step(step));
    ledger.Record(Rank(0), Step(step), static_cast<double>(step), kSamples);
  }
  const auto totals = ledger.Committed(Step(kSteps));
  ASSERT_LE(totals.losses.size(), core::LedgerTotals::kCurveMax);
  ASSERT_GT(totals.losses.size(), core::LedgerTotals::kCurveMax / 2);
  for (size_t i = 0; i < totals.losses.size(); ++i)
    ASSERT_EQ(totals.losses[i], static_cast<double>(1 + i * totals.losses_every)) << i;
  EXPECT_EQ(totals.final_loss, static_cast<double>(kSteps));
  EXPECT_EQ(totals.missing, 0u);
}

// One rank of two never reports: what is kept unfolded has its bound all the same.
TEST(ReportLedger, WhoNeverReportsDoesNotMakeItGrow) {
  ReportLedger ledger(Step(), 2);
  for (uint64_t step = 1; step <= 50'000; ++step) {
    ledger.Stands(Rank(0), Step(step));
    ledger.Record(Rank(0), Step(step), 1, kSamples);
    ASSERT_LE(ledger.rows(), ReportLedger::RowsMax(2) + 1);
  }
  EXPECT_EQ(ledger.Committed(Step(50'000)).samples_consumed, 50'000u * kSamples.size());
}

TEST(ReportLedger, WhoNeverReportsIsNotMissed) {
  ReportLedger ledger;
  for (uint64_t step = 1; step <= 5; ++step) ledger.Record(Rank(0), Step(step), 1, kSamples);
  EXPECT_EQ(ledger.Committed(Step(5)).missing, 0u);
  EXPECT_EQ(ReportLedger().Committed(Step(5)).missing, 0u);
}

// The one that takes over was not told with what the run was started: the totals say where it began.
TEST(ReportLedger, ATakenOverRunBeganWhereItsTotalsDo) {
  for (const uint64_t done : {uint64_t{0}, uint64_t{1}, 3 * ReportLedger::kLag}) {
    ReportLedger first(Step(100), 2);
    for (uint64_t step = 101; step <= 100 + done; ++step)
      for (int rank = 0; rank < 2; ++rank) first.Record(Rank(rank), Step(step), 1, kSamples);
    const ReportLedger next(Step(), 2, first.folded());
    EXPECT_EQ(next.began_after(), Step(100)) << done;
    EXPECT_EQ(next.Committed(Step(100 + first.folded().steps)).losses.size(), first.folded().steps) << done;
  }
}

}  // namespace
}  // namespace kintsugi
