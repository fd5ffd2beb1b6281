// In-memory snapshots, as the controller orders and counts them, and what a reload makes of them.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

uint64_t DigestOf(int rank) { return 100 + static_cast<uint64_t>(rank % 2); }

// Four ranks, shards {0, 2} and {1, 3}, a snapshot every four steps.
Bench SnapshotBench(void (*change)(Policy*) = nullptr) {
  Policy policy = Bench::QuickPolicy(4);
  policy.snapshot_every = 4;
  if (change) change(&policy);
  Bench bench(policy);
  for (int r = 0; r < 4; ++r) bench.digests[r][0] = DigestOf(r);
  bench.Run();
  return bench;
}

SnapshotOrder Order(const Bench& bench, int rank) {
  SnapshotOrder newest;
  for (const auto& [to, order] : bench.Sent<SnapshotOrder>())
    if (to == Rank(rank)) newest = order;
  return newest;
}

SnapshotReport Report(int owner, Step step, uint64_t begun) {
  SnapshotReport report;
  report.owner = Rank(owner);
  report.step = step;
  report.digests[0] = DigestOf(owner);
  report.begun = Step(begun);
  report.cost = 1ms;
  return report;
}

// All ranks make the snapshot that was ordered, with everybody at the step after it.
void Make(Bench& bench) {
  for (int r = 0; r < 4; ++r) {
    const SnapshotOrder order = Order(bench, r);
    for (Rank owner : order.of) bench.Say(r, Report(owner.value(), order.step, order.step.value() + 1));
  }
  std::vector<SnapshotOrder> orders;
  for (int r = 0; r < 4; ++r) orders.push_back(Order(bench, r));
  for (int r = 0; r < 4; ++r) bench.Say(r, Report(r, orders[static_cast<size_t>(r)].step, orders[0].step.value() + 1));
}

RungReason Chosen(const Bench& bench) { return bench.All<IncidentClosed>().back().record.reasons.back(); }

TEST(Snapshots, AreOrderedOnceAllRanksRun) {
  const Bench bench = SnapshotBench();
  ASSERT_EQ(bench.Sent<SnapshotOrder>().size(), 4u);
  for (int r = 0; r < 4; ++r) {
    const SnapshotOrder order = Order(bench, r);
    EXPECT_EQ(order.step, Step(4));
    EXPECT_EQ(order.keep, Step());
    EXPECT_NE(order.partner.value() % 2, r % 2) << "outside the replica group";
    ASSERT_EQ(order.of.size(), 1u);
    EXPECT_EQ(Order(bench, order.partner.value()).of, std::vector<Rank>{Rank(r)});
  }
}

TEST(Snapshots, AreNotMadeUnasked) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  EXPECT_TRUE(bench.Sent<SnapshotOrder>().empty());
}

TEST(Snapshots, TheNextOneKeepsTheNewestThatCounts) {
  Bench bench = SnapshotBench();
  Make(bench);
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step(4));
  EXPECT_EQ(Order(bench, 0).step, Step(8));
  EXPECT_EQ(Order(bench, 0).keep, Step(4));
  ASSERT_EQ(bench.All<SnapshotSettled>().size(), 1u);
  EXPECT_TRUE(bench.All<SnapshotSettled>()[0].counts);
}

TEST(Snapshots, OneAbandonedIsCountedAndTriedLater) {
  Bench bench = SnapshotBench();
  Make(bench);
  for (int r = 0; r < 4; ++r) {
    SnapshotReport report = Report(r, Step(8), 9);
    if (r == 1) report.code = StatusCode::kCancelled, report.text = "the gate came first";
    const SnapshotOrder order = Order(bench, r);
    for (Rank owner : order.of)
      if (owner != Rank(1)) bench.Say(r, Report(owner.value(), Step(8), 9));
    bench.Say(r, report);
  }
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step(4));
  EXPECT_EQ(bench.core.snapshots().abandoned(), 1u);
  const auto settled = bench.All<SnapshotSettled>().back();
  EXPECT_FALSE(settled.counts);
  EXPECT_EQ(settled.rank, Rank(1));
  EXPECT_EQ(settled.text, "the gate came first");
  EXPECT_EQ(Order(bench, 0).step, Step(12));
  EXPECT_EQ(Order(bench, 0).keep, Step(4));
}

TEST(Snapshots, OrdersThatComeLateAreGivenFurtherAhead) {
  Bench bench = SnapshotBench([](Policy* policy) { policy->snapshot_every = 1; });
  EXPECT_EQ(Order(bench, 0).step, Step(1));
  for (const uint64_t begun : {5, 10, 20}) {
    const Step step = Order(bench, 0).step;
    for (int r = 0; r < 4; ++r) {
      SnapshotReport report = Report(r, step, begun);
      report.code = StatusCode::kUnavailable;
      bench.Say(r, report);
    }
  }
  EXPECT_EQ(Order(bench, 0).step, Step(28)) << "eight ahead after three that were late";
}

TEST(Snapshots, WhoCanMakeNoneEndsThem) {
  Bench bench = SnapshotBench();
  for (int r = 0; r < 4; ++r) {
    SnapshotReport report = Report(r, Step(4), 1);
    report.code = r == 2 ? StatusCode::kFailedPrecondition : StatusCode::kUnavailable;
    report.text = "device memory";
    bench.Say(r, report);
  }
  EXPECT_EQ(bench.Sent<SnapshotOrder>().size(), 4u) << "no other is ordered";
  bench.CommitAll(6);
  bench.Exit(1);
  EXPECT_EQ(bench.Sent<SnapshotOrder>().size(), 4u);
}

TEST(Snapshots, CopiesOfOneShardThatDifferDoNotCount) {
  Bench bench = SnapshotBench();
  for (int r = 0; r < 4; ++r)
    for (int owner = 0; owner < 4; ++owner)
      if (owner == r || Order(bench, r).of == std::vector<Rank>{Rank(owner)}) {
        SnapshotReport report = Report(owner, Step(4), 5);
        if (owner == 2) report.digests[0] = 7;  // and so has its second copy
        bench.Say(r, report);
      }
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step());
  EXPECT_EQ(bench.core.snapshots().abandoned(), 1u);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Snapshots, AnOrderLostWithItsConnectionIsGivenAgain) {
  Bench bench = SnapshotBench();
  bench.Close(2);
  bench.Rejoin(2);
  int told = 0;
  for (const auto& [to, order] : bench.Sent<SnapshotOrder>()) told += to == Rank(2);
  EXPECT_EQ(told, 2);
}

TEST(Snapshots, AnIncidentVoidsTheAttemptAndAnotherFollows) {
  Bench bench = SnapshotBench();
  const SnapshotOrder order = Order(bench, 0);
  bench.Say(0, Report(0, order.step, 5));
  bench.CommitAll(4);
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(Order(bench, 0).step, Step(8));
  bench.SayLate(2, Report(2, order.step, 5));
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step());
}

TEST(Snapshots, AWholeGroupThatIsLostComesBackFromThem) {
  Bench bench = SnapshotBench([](Policy* policy) { policy->save_directory.clear(); });
  Make(bench);
  bench.CommitAll(6);
  bench.hold = Phase::kLock;
  bench.Exit(0);
  bench.hold.reset();
  bench.Exit(2);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning) << bench.Ended().value_or(RunEnded{}).text;
  EXPECT_EQ(Chosen(bench).rung, Rung::kReload);
  EXPECT_NE(Chosen(bench).text.find("snapshot of step 4"), std::string::npos) << Chosen(bench).text;
  const auto orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_FALSE(orders.empty());
  EXPECT_TRUE(orders.back().from_snapshot);
  EXPECT_EQ(orders.back().step, Step(4));
  EXPECT_TRUE(orders.back().directory.empty());
  EXPECT_EQ(orders.back().moves.size(), 2u);
  EXPECT_EQ(bench.Sent<ResumeOrder>().back().second.step, Step(4));
}

// Nobody is untouched then, and two copies that differ do not tell which is wrong. The record does.
TEST(Snapshots, WhoComesBackOtherThanRecordedIsTheOneThatPays) {
  for (int wrong : {0, 2}) {
    Bench bench = SnapshotBench([](Policy* policy) { policy->save_directory.clear(); });
    Make(bench);
    bench.CommitAll(6);
    bench.hold = Phase::kLock;
    bench.Exit(0);
    bench.hold = Phase::kVerify;
    bench.Exit(2);
    const auto verify = [&] {
      for (int r = 0; r < 4; ++r)
        bench.Say(r, PhaseDone{.phase = Phase::kVerify, .digests = {{0, r == wrong ? 7 : DigestOf(r)}}});
    };
    verify();
    EXPECT_EQ(bench.Killed(), std::set<int>{}) << "it is given another try";
    verify();
    EXPECT_EQ(bench.Killed(), std::set<int>{wrong});
  }
}

TEST(Snapshots, AShardWithoutAReplicaIsHeldAgainstItsRecord) {
  EXPECT_FALSE(
      CompareWithRecord(ReplicaMap::Build(1, {{Rank(0), {{0, {{Rank(0)}, 1}}}}}).value(), {{{0, 7}}}, {{{0, 8}}})
          .equal);
}

TEST(Snapshots, ANewerCheckpointGoesFirst) {
  Bench bench = SnapshotBench();
  Make(bench);
  bench.Say(3, Published{Step(5), "saves"});
  bench.CommitAll(6);
  bench.hold = Phase::kLock;
  bench.Exit(0);
  bench.hold.reset();
  bench.Exit(2);
  ASSERT_FALSE(bench.Orders(Phase::kRepair, 1).empty());
  EXPECT_FALSE(bench.Orders(Phase::kRepair, 1).back().from_snapshot);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 1).back().step, Step(5));
}

TEST(Snapshots, TheLossOfTheKeepersTooIsToldAsTheReason) {
  Bench bench = SnapshotBench([](Policy* policy) { policy->save_directory.clear(); });
  Make(bench);
  bench.CommitAll(6);
  bench.hold = Phase::kLock;
  for (int r : {0, 1, 2}) bench.Exit(r);
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_TRUE(bench.Ended());
  EXPECT_NE(bench.Ended()->exit_code, 0);
  const auto record = bench.All<IncidentClosed>().back().record;
  const auto reload = std::find_if(record.reasons.begin(), record.reasons.end(),
                                   [](const RungReason& reason) { return reason.rung == Rung::kReload; });
  ASSERT_NE(reload, record.reasons.end());
  EXPECT_EQ(reload->reason, Refusal::kNoCheckpoint);
  EXPECT_NE(reload->text.find("in-memory snapshot of step 4"), std::string::npos) << reload->text;
}

TEST(Snapshots, ACopyThatCannotBeReadIsTakenFromElsewhere) {
  Bench bench = SnapshotBench([](Policy* policy) { policy->save_directory.clear(); });
  Make(bench);
  bench.CommitAll(6);
  bench.hold = Phase::kLock;
  bench.Exit(0);
  bench.hold = Phase::kRepair;
  bench.Exit(2);
  ASSERT_EQ(bench.core.phase(), Phase::kRepair);
  bench.hold.reset();
  bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kDataLoss, .text = "damaged"});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning) << bench.Ended().value_or(RunEnded{}).text;
  bool moved = false;
  const std::vector<PhaseOrder> orders = bench.Orders(Phase::kRepair, 1);
  for (const RepairMove& move : orders.back().moves) moved = moved || move.destination == Rank(1);
  EXPECT_TRUE(moved) << "rank 1's own copy was no good";
}

TEST(Snapshots, AreGoneWithAnOlderStepTheRunGoesBackTo) {
  Bench bench = SnapshotBench();
  bench.Say(3, Published{Step(2), "saves"});
  Make(bench);
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step(4));
  bench.CommitAll(6);
  bench.hold = Phase::kLock;
  for (int r : {0, 1, 2}) bench.Exit(r);
  bench.hold.reset();
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<ResumeOrder>().back().second.step, Step(2));
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step());
}

TEST(Snapshots, AutoChoosesTheIntervalFromTheCost) {
  Bench bench = SnapshotBench([](Policy* policy) { policy->snapshot_every = 0, policy->snapshot_auto = true; });
  EXPECT_EQ(Order(bench, 0).step, Step(1));
  for (uint64_t step = 0; step < 6; ++step) {  // learnt: 100 ms for a step
    bench.CommitAll(step);
    bench.Pass(100ms);
  }
  Make(bench);
  EXPECT_EQ(Order(bench, 0).step.value(), 7u) << "1 ms is 1 % of a step";
  const SnapshotOrder order = Order(bench, 0);
  for (int r = 0; r < 4; ++r) {
    SnapshotReport own = Report(r, order.step, 8);
    own.cost = 10ms;
    for (Rank owner : Order(bench, r).of) bench.Say(r, Report(owner.value(), order.step, 8));
    bench.Say(r, own);
  }
  EXPECT_EQ(Order(bench, 0).step.value() % 10, 0u) << Order(bench, 0).step.ToString();
}

}  // namespace
}  // namespace kintsugi::core
