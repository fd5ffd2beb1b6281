// Saves, pauses, leaving and the control plane's gate.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

Bench SaveBench(Policy policy) {
  Bench bench(std::move(policy));
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

void AckAll(Bench& bench, int world, uint64_t begun) {
  for (int r = 0; r < world; ++r) bench.Say(r, PauseAck{Step(begun)});
}

TEST(Save, ParksAllAtOneBoundaryWritesAndGoesOn) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.hold = Phase::kDump;
  bench.Feed(OperatorSave{});
  const uint64_t at = bench.Sent<PauseAt>().back().second.step.value();
  AckAll(bench, 4, at);
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(at)});
  ASSERT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
  ASSERT_EQ(bench.Orders(Phase::kDump, 1).size(), 1u);
  bench.Say(0, PhaseDone{.phase = Phase::kDump});
  EXPECT_TRUE(bench.Orders(Phase::kRename, 0).empty()) << "not all parts are written";
  bench.Say(1, PhaseDone{.phase = Phase::kDump});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Save, AStopThatComesAfterAWriterHasFailedIsNotTakenForSaved) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.hold = Phase::kDump;
  bench.Feed(OperatorSave{});
  const uint64_t at = bench.Sent<PauseAt>().back().second.step.value();
  AckAll(bench, 4, at);
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(at)});
  bench.Say(0, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kInternal, .text = "the disk is full"});
  bench.Feed(OperatorStop{});
  bench.CommitAll(at);
  bench.hold.reset();
  bench.Say(1, PhaseDone{.phase = Phase::kDump});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  EXPECT_EQ(bench.All<CheckpointReady>().size(), 1u) << "it ends as if it had been saved";
}

TEST(Save, ThePauseMovesToARankThatHadGonePast) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorSave{});
  bench.Say(0, PauseAck{Step(5)});
  bench.Say(0, SavePoint{Step(5)});
  bench.Say(1, PauseAck{Step(6)});
  EXPECT_EQ(bench.Sent<PauseAt>().back().second.step, Step(6));
  ASSERT_EQ(bench.Sent<ContinueOrder>().size(), 1u) << "rank 0 had parked at the earlier step";
  EXPECT_EQ(bench.Sent<ContinueOrder>()[0].first, Rank(0));
}

// Step 0 would say that there is no pause.
TEST(Save, AskedForBeforeAnyStepWasBegunItNamesTheFirst) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.Feed(OperatorSave{});
  EXPECT_EQ(bench.Sent<PauseAt>().back().second.step, Step(1));
}

TEST(Save, ASavePointThatThePauseHasPassedIsLeft) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorSave{});
  bench.Say(0, PauseAck{Step(5)});
  bench.Say(1, PauseAck{Step(6)});
  bench.Say(0, SavePoint{Step(5)});  // crossed the moved pause on its way
  ASSERT_EQ(bench.Sent<ContinueOrder>().size(), 1u);
}

TEST(Save, AimsFurtherAheadWhereStepsOutrunThePause) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorSave{});
  std::vector<uint64_t> ahead;
  for (int round = 0; round < 5; ++round) {  // each answer comes when one more step has begun than was aimed at
    const uint64_t begun = bench.Sent<PauseAt>().back().second.step.value() + 1;
    AckAll(bench, 2, begun);
    ahead.push_back(bench.Sent<PauseAt>().back().second.step.value() - begun);
  }
  EXPECT_EQ(ahead, (std::vector<uint64_t>{0, 1, 2, 4, 8}));
}

TEST(Save, OvertakenByTheEndItIsMadeThere) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorSave{});
  for (int r = 0; r < 2; ++r) bench.Say(r, Finished{Step(9)});
  ASSERT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0)[0].step, Step(9));
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitSuccess);
}

TEST(Save, AFailedWriterIsNotLeftBehindByTheOthers) {
  Policy policy = Bench::QuickPolicy(4);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  bench.hold = Phase::kDump;
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(6)});
  bench.Say(0, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted});
  EXPECT_TRUE(bench.Sent<ContinueOrder>().empty()) << "rank 1 still writes";
  bench.Say(1, PhaseDone{.phase = Phase::kDump});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
  EXPECT_TRUE(bench.Orders(Phase::kRename, 0).empty());
  EXPECT_FALSE(bench.Ended());
}

// The word that a rank is in its loop can come again, after a connection that broke, while it writes.
TEST(Save, ARankThatWritesHasNotWrittenBecauseItIsInItsLoop) {
  Policy policy = Bench::QuickPolicy(4);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  bench.hold = Phase::kRollback;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  bench.hold = Phase::kDump;
  bench.mute = {1};
  for (int r = 0; r < 4; ++r) bench.Say(r, PhaseDone{.phase = Phase::kRollback});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(6)});
  ASSERT_EQ(bench.Orders(Phase::kDump, 1).size(), 1u);
  bench.Say(1, Resumed{});
  bench.Say(0, PhaseDone{.phase = Phase::kDump});
  EXPECT_TRUE(bench.Orders(Phase::kRename, 0).empty()) << "rank 1 still writes";
  bench.Say(1, PhaseDone{.phase = Phase::kDump});
  EXPECT_EQ(bench.Orders(Phase::kRename, 0).size() + bench.Orders(Phase::kRename, 1).size(), 1u);
}

// Four ranks in pairs that hold the same `megabytes`; ranks 0 and 1 write what there is of step 6.
Bench Writing(uint64_t megabytes, Policy policy = Bench::QuickPolicy(4)) {
  policy.save_every = 6;
  Bench bench(std::move(policy));
  TensorSummary tensor;
  tensor.key = "weights";
  tensor.dtype = DType::kFloat32;
  tensor.local_shape = {static_cast<int64_t>(megabytes) * 250'000};
  if (megabytes > 0)
    for (int r = 0; r < 4; ++r) bench.registries[r].tensors = {tensor};
  bench.Run();
  bench.CommitAll(6);
  bench.hold = Phase::kDump;
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(6)});
  return bench;
}

TEST(Save, AWriterThatDoesNotEndIsGivenUp) {
  for (const uint64_t megabytes : {0, 1}) {
    Bench bench = Writing(megabytes);
    bench.stuck = {0};
    bench.Say(1, PhaseDone{.phase = Phase::kDump});
    bench.Pass(20s);
    // Ten limits for one of whose bytes nobody knows; with so few as these one, and STOP's.
    EXPECT_EQ(bench.Killed(), megabytes > 0 ? std::set<int>{0} : std::set<int>{});
    bench.Pass(40s);
    EXPECT_EQ(bench.Killed(), std::set<int>{0});
  }
}

// Whoever comes out when it is stopped was slow: it has all its time in the next one.
TEST(Save, AWriterThatIsSlowOnceCostsNobody) {
  Bench bench = Writing(1);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).back().limit, 4s);
  bench.Pass(6s);
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.incidents(), 1u);
  bench.CommitAll(12);
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(12)});
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).back().limit, bench.core.policy().RepairLimit());
}

TEST(Save, MuchTakesLonger) {
  Bench bench = Writing(100);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).back().limit, 4s + 2 * 10s) << "two shards on one disk";
}

// In the grace period, which is shorter than its limit.
TEST(Save, AStopGivesUpTheWriterThatHangsAndTheOthersSave) {
  for (const bool before : {true, false}) {
    Policy policy = Bench::QuickPolicy(4);
    policy.step_timeout = 60s;
    policy.grace = 20s;
    Bench bench = Writing(1, policy);
    bench.stuck = {0};
    bench.Say(1, PhaseDone{.phase = Phase::kDump});
    if (!before) bench.Pass(30s);
    EXPECT_TRUE(bench.Killed().empty());
    bench.Feed(OperatorStop{});
    bench.hold.reset();
    for (int waited = 0; waited < 20 && !bench.Ended(); ++waited) bench.Pass(1s);
    EXPECT_EQ(bench.Killed().count(0), 1u);
    ASSERT_TRUE(bench.Ended());
    EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
    ASSERT_EQ(bench.All<CheckpointReady>().size(), 1u) << bench.Ended()->text;
    EXPECT_EQ(bench.All<CheckpointReady>()[0].step, Step(6));
  }
}

// What may need all that is left of the grace period has it.
TEST(Save, AStopDoesNotHurryAWriterThatHasMuchToWrite) {
  Policy policy = Bench::QuickPolicy(4);
  policy.step_timeout = 60s;
  policy.grace = 20s;
  Bench bench = Writing(100, policy);
  bench.Feed(OperatorStop{});
  bench.Pass(19s);
  EXPECT_EQ(bench.core.incidents(), 0u);
  for (int r : {0, 1}) bench.Say(r, PhaseDone{.phase = Phase::kDump});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.All<CheckpointReady>().size(), 1u);
}

TEST(Save, WhileRepairsThatHangCostOneLimitToo) {
  for (const bool hangs : {true, false}) {
    Bench bench = Writing(1);
    for (int r : {0, 1}) bench.Say(r, PhaseDone{.phase = Phase::kDump});
    bench.hold = Phase::kRepair;
    bench.Exit(3);
    ASSERT_EQ(bench.core.phase(), Phase::kRepair);
    EXPECT_EQ(bench.Orders(Phase::kRepair, 3).back().limit, 4s);
    if (hangs) bench.stuck = {3}, bench.hold.reset();
    bench.Pass(15s);
    EXPECT_EQ(bench.Killed(), hangs ? std::set<int>{3} : std::set<int>{});
    if (hangs) EXPECT_EQ(bench.core.phase(), Phase::kRunning);
    // All were slow, and nobody hung: the next attempt has all its time.
    EXPECT_EQ(bench.Orders(Phase::kRepair, 3).back().limit, bench.core.policy().RepairLimit());
  }
}

TEST(Save, OutlivesAHealedGap) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  bench.hold = Phase::kDump;
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(6)});
  bench.Close(1);
  ASSERT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Say(0, PhaseDone{.phase = Phase::kDump});
  bench.Rejoin(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
}

TEST(Save, IsBegunOnceTheIncidentIsOver) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.hold = Phase::kClean;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  bench.Feed(OperatorSave{});
  EXPECT_TRUE(bench.Sent<PauseAt>().empty());
  bench.hold.reset();
  for (int r = 0; r < 4; ++r) bench.Say(r, PhaseDone{.phase = Phase::kClean});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<PauseAt>().size(), 4u);
}

TEST(Save, TellsWhatBecameOfIt) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(6)});
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_TRUE(bench.All<SaveSettled>()[0].saved);
  EXPECT_EQ(bench.All<SaveSettled>()[0].step, Step(6));
  bench.hold = Phase::kDump;
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(12)});
  bench.Say(0, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "the disk is full"});
  ASSERT_EQ(bench.All<SaveSettled>().size(), 2u);
  EXPECT_FALSE(bench.All<SaveSettled>()[1].saved);
  EXPECT_EQ(bench.All<SaveSettled>()[1].step, Step(12));
  EXPECT_NE(bench.All<SaveSettled>()[1].text.find("the disk is full"), std::string::npos);
}

// The writers share a folder, and the first that fails removes it: whose word comes first is chance.
TEST(Save, TellsTheCauseAndNotItsEcho) {
  const PhaseDone cause{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "the disk is full"};
  const PhaseDone echo{.phase = Phase::kDump, .code = StatusCode::kCancelled, .text = "another writer has failed"};
  for (const bool echo_first : {false, true}) {
    Policy policy = Bench::QuickPolicy(4);
    policy.save_every = 6;
    Bench bench = SaveBench(policy);
    bench.hold = Phase::kDump;
    for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(6)});
    bench.Say(0, echo_first ? echo : cause);
    bench.Say(1, echo_first ? cause : echo);
    ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
    const SaveSettled settled = bench.All<SaveSettled>()[0];
    EXPECT_FALSE(settled.saved);
    EXPECT_EQ(settled.rank, Rank(echo_first ? 1 : 0));
    EXPECT_NE(settled.text.find("the disk is full"), std::string::npos) << settled.text;
    EXPECT_EQ(bench.member(0).save_failed, !echo_first) << "an echo is nothing against a writer";
  }
}

TEST(Save, TheLastOneIsTriedAgainForItsCauseAndNotForTheEcho) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.hold = Phase::kDump;
  bench.Feed(OperatorStop{});
  const uint64_t at = bench.Sent<PauseAt>().back().second.step.value();
  AckAll(bench, 4, at);
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(at)});
  bench.Say(0, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kCancelled, .text = "another writer has failed"});
  EXPECT_TRUE(bench.Sent<StopOrder>().empty()) << "rank 1 still writes, and it has the cause";
  bench.Say(1, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "the disk is full"});
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_NE(bench.All<SaveSettled>()[0].text.find("the disk is full"), std::string::npos);
  EXPECT_FALSE(bench.Sent<StopOrder>().empty()) << "an incident begins, and the save is made after it";
}

TEST(Save, CarriesThePublishersRemarkAndNoOlderOne) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  for (uint64_t step : {6u, 12u}) {
    bench.hold = Phase::kRename;
    for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(step)});
    bench.hold.reset();
    bench.Say(0, PhaseDone{.phase = Phase::kRename, .text = step == 6 ? "a state lacks" : ""});
  }
  ASSERT_EQ(bench.All<SaveSettled>().size(), 2u);
  EXPECT_TRUE(bench.All<SaveSettled>()[0].saved);
  EXPECT_EQ(bench.All<SaveSettled>()[0].text, "a state lacks");
  EXPECT_TRUE(bench.All<SaveSettled>()[1].saved);
  EXPECT_EQ(bench.All<SaveSettled>()[1].text, "");
}

TEST(Save, OneThatWasAskedForIsMadeAfterTheIncidentThatInterruptedIt) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorSave{});
  ASSERT_EQ(bench.Sent<PauseAt>().size(), 4u);
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<PauseAt>().size(), 8u) << "asked for again";
  EXPECT_TRUE(bench.All<SaveSettled>().empty());
  // Not for ever, though the run itself goes on: it fails at another step each time.
  for (uint64_t step = 6; step <= 10; ++step) {
    bench.CommitAll(step - 1);
    bench.Say(0, FaultReport{.kind = FaultKind::kException, .step = Step(step)});
  }
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  ASSERT_EQ(bench.All<SaveSettled>().size(), 1u);
  EXPECT_FALSE(bench.All<SaveSettled>()[0].saved);
}

TEST(Save, IsRefusedWithoutADirectory) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_directory.clear();
  Bench bench = SaveBench(policy);
  bench.Feed(OperatorSave{});
  EXPECT_TRUE(bench.Sent<PauseAt>().empty());
  EXPECT_FALSE(bench.Ended());
}

TEST(Save, AReplacementIsNotTakenForItsPredecessor) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  bench.CommitAll(6);
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(6)});
  ASSERT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
  // Rank 1 dies and the run goes back behind step 6: at its boundary all wait for the save again.
  bench.Say(0, Published{Step(4), "saves"});
  bench.standing[0] = {GateState::kTorn, Step(7), false};
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.hold = Phase::kDump;
  bench.Say(1, SavePoint{Step(6)});
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 2u);
  bench.Say(0, SavePoint{Step(6)});
  EXPECT_FALSE(bench.Orders(Phase::kDump, 0).empty());
}

TEST(Save, KnowsACheckpointByItsPublishersAnswer) {
  Policy policy = Bench::QuickPolicy(2);
  policy.save_every = 6;
  Bench bench = SaveBench(policy);
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(6)});
  const auto ready = bench.All<CheckpointReady>();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].step, Step(6));
  bench.Say(0, Published{Step(6), "saves"});
  EXPECT_EQ(bench.All<CheckpointReady>().size(), 1u) << "said once";
}

TEST(Save, AStopSavesAndLeaves) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Feed(OperatorStop{});
  const uint64_t at = bench.Sent<PauseAt>().back().second.step.value();
  AckAll(bench, 2, at);
  for (int r = 0; r < 2; ++r) bench.Say(r, SavePoint{Step(at)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
}

TEST(Save, AStopWhoseGraceRunsOutDumpsAtOnce) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.Feed(OperatorStop{});
  bench.Pass(6s);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kDump);
  EXPECT_TRUE(bench.All<IncidentClosed>().back().record.ranks.empty()) << "no rank is the cause";
}

TEST(Save, AStopWaitsForNobodyWhoIsStillToCome) {
  Bench bench = SaveBench(Bench::QuickPolicy(4));
  bench.replacements_come = false;
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.Feed(OperatorStop{});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  EXPECT_FALSE(bench.Orders(Phase::kDump, 0).empty());
}

TEST(Save, AStopNeverDumpsAShardThatNobodyHolds) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.hold = Phase::kStop;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  bench.Feed(OperatorStop{});
  bench.hold.reset();
  // Both updates threw after the lock.
  for (int r = 0; r < 2; ++r) bench.Say(r, Parked{GateState::kTorn, Step(6), false});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
}

TEST(Save, WithoutRespawnsTheSurvivorsDump) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 0;
  Bench bench = SaveBench(policy);
  bench.Exit(0);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  ASSERT_EQ(bench.Orders(Phase::kDump, 2).size(), 1u);
  EXPECT_EQ(bench.Orders(Phase::kDump, 2)[0].entries[0].objects_of, (std::vector<Rank>{Rank(0), Rank(2)}));
}

TEST(Save, TheLastOneIsTriedByAnotherHolder) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 0;
  Bench bench = SaveBench(policy);
  bench.hold = Phase::kDump;
  bench.Exit(0);
  ASSERT_EQ(bench.Orders(Phase::kDump, 1).size(), 1u);
  bench.Say(1, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "disk full"});
  EXPECT_EQ(bench.Orders(Phase::kDump, 3).size(), 1u);
  EXPECT_FALSE(bench.Ended());
  bench.Say(3, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "disk full"});
  bench.Say(1, PhaseDone{.phase = Phase::kDump, .code = StatusCode::kResourceExhausted, .text = "disk full"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("disk full"), std::string::npos);
}

TEST(Save, ADumpNeedsNoReplacements) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 1;
  Bench bench = SaveBench(policy);
  bench.Exit(0);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.CommitAll(6);
  bench.hold = Phase::kDump;
  bench.replacements_come = false;
  bench.Exit(1);  // a replacement is on its way
  bench.Exit(0);  // none is left
  ASSERT_EQ(bench.core.phase(), Phase::kDump);
  const Generation before = bench.core.generation();
  bench.Exit(1, "exited with code 1");
  EXPECT_EQ(bench.core.phase(), Phase::kDump);
  EXPECT_EQ(bench.core.generation(), before);
}

TEST(Gate, OpensWhenEveryRankHasEnteredIt) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  bench.Say(0, GateEntered{Step(6)});
  EXPECT_TRUE(bench.Sent<GateOpen>().empty());
  bench.Say(1, GateEntered{Step(6)});
  EXPECT_EQ(bench.Sent<GateOpen>().size(), 2u);
}

TEST(Gate, IsOpenedAgainForARankWhoseAnswerWasLost) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  for (int r = 0; r < 2; ++r) bench.Say(r, GateEntered{Step(6)});
  bench.Say(0, GateEntered{Step(7)});
  bench.Say(1, GateEntered{Step(6)});
  ASSERT_EQ(bench.Sent<GateOpen>().size(), 3u);
  EXPECT_EQ(bench.Sent<GateOpen>()[2].first, Rank(1));
  bench.Say(1, GateEntered{Step(7)});
  EXPECT_EQ(bench.Sent<GateOpen>().size(), 5u);
}

TEST(Gate, AnIncidentForgetsWhatWasOpened) {
  Bench bench = SaveBench(Bench::QuickPolicy(2));
  for (int r = 0; r < 2; ++r) bench.Say(r, GateEntered{Step(6)});
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.Say(0, GateEntered{Step(6)});
  EXPECT_EQ(bench.Sent<GateOpen>().size(), 2u) << "step 6 is done again, by all";
}

}  // namespace
}  // namespace kintsugi::core
