// VERIFY: what digests prove, and who pays for a mismatch.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

ReplicaMap Triple() {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (int r = 0; r < 3; ++r) claims[Rank(r)][0] = {{Rank(0), Rank(1), Rank(2)}, 3};
  return ReplicaMap::Build(3, claims).value();
}

Digests ByRank(const std::vector<uint64_t>& digests) {
  Digests by_rank;
  for (uint64_t digest : digests) by_rank.push_back({{0, digest}});
  return by_rank;
}

DigestVerdict Compare(const std::vector<uint64_t>& digests, const std::set<Rank>& repaired) {
  std::vector<Copy> copies(3, Copy::kUntouched);
  for (Rank rank : repaired) copies[static_cast<size_t>(rank.value())] = Copy::kStreamed;
  return CompareDigests(Triple(), ByRank(digests), copies);
}

DigestVerdict CompareAs(const std::vector<uint64_t>& digests, const std::vector<Copy>& copies, bool strict = false) {
  return CompareDigests(Triple(), ByRank(digests), copies, strict);
}

TEST(CompareDigests, EqualCopiesAreEqual) {
  EXPECT_TRUE(Compare({7, 7, 7}, {Rank(1)}).equal);
  EXPECT_TRUE(Compare({}, {}).equal) << "nobody has a state service";
}

TEST(CompareDigests, BlamesTheRepairedCopyThatDiffers) {
  const DigestVerdict verdict = Compare({9, 7, 7}, {Rank(0), Rank(1)});
  EXPECT_FALSE(verdict.equal);
  EXPECT_TRUE(verdict.attributed);
  EXPECT_EQ(verdict.odd, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(verdict.expected, Rank(2));
}

TEST(CompareDigests, DoubtsAllWhereUntouchedCopiesDiffer) {
  const DigestVerdict verdict = Compare({7, 7, 9}, {Rank(1)});
  EXPECT_FALSE(verdict.equal);
  EXPECT_FALSE(verdict.attributed);
  EXPECT_EQ(verdict.odd.size(), 3u);
}

TEST(CompareDigests, TakesTheFirstWhereAllWereReloaded) {
  const DigestVerdict verdict = Compare({7, 9, 7}, {Rank(0), Rank(1), Rank(2)});
  EXPECT_TRUE(verdict.attributed);
  EXPECT_EQ(verdict.odd, std::vector<Rank>{Rank(1)});
}

TEST(CompareDigests, MostOfThreeDecide) {
  const DigestVerdict verdict = CompareAs({7, 9, 7}, {Copy::kUntouched, Copy::kUntouched, Copy::kOfCrashed});
  EXPECT_TRUE(verdict.attributed);
  EXPECT_EQ(verdict.odd, std::vector<Rank>{Rank(1)});
  EXPECT_EQ(verdict.expected, Rank(0));
  EXPECT_EQ(verdict.differs, Rank(1));
}

TEST(CompareDigests, BelievesTheLivingBeforeTheDeadUnlessBothAreToBeDoubted) {
  const std::vector<Copy> copies = {Copy::kUntouched, Copy::kAdopted, Copy::kStreamed};
  const DigestVerdict lenient = CompareAs({7, 9, 7}, copies);
  EXPECT_TRUE(lenient.attributed);
  EXPECT_EQ(lenient.odd, std::vector<Rank>{Rank(1)});
  const DigestVerdict strict = CompareAs({7, 9, 7}, copies, /*strict=*/true);
  EXPECT_FALSE(strict.attributed);
  EXPECT_EQ(strict.odd.size(), 3u) << "what was streamed is no better than its source";
}

TEST(CompareDigests, BelievesWhoWasKilledBeforeWhoCrashed) {
  const DigestVerdict verdict = CompareAs({9, 7, 0}, {Copy::kOfCrashed, Copy::kAdopted, Copy::kAbsent}, true);
  EXPECT_TRUE(verdict.attributed);
  EXPECT_EQ(verdict.odd, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(verdict.expected, Rank(1));
}

TEST(CompareDigests, ARecordTellsEvenTwoThatAgree) {
  const DigestVerdict verdict = CompareWithRecord(Triple(), ByRank({9, 9, 0}), ByRank({7, 7, 7}),
                                                  {Copy::kUntouched, Copy::kStreamed, Copy::kAbsent});
  EXPECT_FALSE(verdict.equal);
  EXPECT_EQ(verdict.odd, (std::vector<Rank>{Rank(0), Rank(1)}));
  EXPECT_NE(ToString(verdict, Step(5)).find("recorded"), std::string::npos);
}

TEST(Verify, StreamsADifferingCopyOnceMoreThenRespawnsItsRank) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kVerify;
  bench.standing[1] = {GateState::kTorn, Step(6), false};
  bench.Say(1, FaultReport{.kind = FaultKind::kException, .in_update = true});
  const auto verify = [&](uint64_t of_rank_1) {
    for (int r = 0; r < 4; ++r)
      bench.Say(r, PhaseDone{.phase = Phase::kVerify, .digests = {{0, r == 1 ? of_rank_1 : 1}}});
  };
  verify(2);
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_EQ(bench.Orders(Phase::kRepair, 1).size(), 2u);
  verify(3);
  EXPECT_EQ(bench.Killed(), std::set<int>{1});
  EXPECT_EQ(bench.Orders(Phase::kRepair, 1).size(), 3u);
  bench.hold.reset();
  verify(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Verify, NeverDumpsCopiesThatDifferWithoutARepair) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(5);
  bench.digests[0][0] = 8;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  EXPECT_TRUE(bench.Orders(Phase::kDump, 1).empty());
}

TEST(Verify, ReloadsCopiesThatDifferWhereThereIsACheckpoint) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(4);
  bench.Say(0, Published{Step(4), "saves/4"});
  bench.CommitAll(5);
  bench.hold = Phase::kRepair;
  bench.digests[0][0] = 8;
  bench.Say(0, FaultReport{.kind = FaultKind::kException});
  const auto orders = bench.Orders(Phase::kRepair, 1);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].rung, Rung::kReload);
  EXPECT_EQ(orders[0].directory, "saves/4");
  EXPECT_EQ(orders[0].step, Step(4));
}

TEST(Verify, ReplicasThatStartDifferentEndTheStart) {
  Bench bench(Bench::QuickPolicy(2));
  bench.digests[1][0] = 3;
  bench.Run();
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
}

TEST(Verify, ARunEndsWithADigestOverAllShards) {
  const auto digest = [](uint64_t of_pair) {
    Bench bench(Bench::QuickPolicy(4));
    bench.digests[1][0] = bench.digests[3][0] = of_pair;
    bench.Run();
    bench.CommitAll(9);
    for (int r = 0; r < 4; ++r) bench.Say(r, Finished{Step(9)});
    return bench.Ended().value().final_digest.value();
  };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

TEST(Verify, AMismatchAtTheEndIsAnIncident) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(9);
  bench.digests[1][0] = 5;
  for (int r = 0; r < 2; ++r) bench.Say(r, Finished{Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_NE(bench.Ended()->exit_code, kExitSuccess);
}

// Replicas are compared every four steps; saves only on request unless `save_every` says otherwise.
// A stream mends the copy, and not what it gave to the others while nobody compared them.
TEST(Verify, WhatAWrongCopyMayHaveGivenToOthersIsToldAsInexact) {
  Bench bench(Bench::QuickPolicy(3));
  for (auto& [rank, layouts] : bench.claims) layouts[0].replicas = 3;
  bench.Run();
  bench.CommitAll(9);
  bench.digests[1][0] = 5;
  for (int r = 0; r < 3; ++r) bench.Say(r, Finished{Step(9)});
  const std::vector<InexactNews> told = bench.All<InexactNews>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].rank, Rank(1));
  EXPECT_NE(told[0].text.find("at step 9"), std::string::npos) << told[0].text;
}

TEST(Verify, ADyingGaspIsComparedBeforeItIsWritten) {
  for (const bool equal : {true, false}) {
    Policy policy = Bench::QuickPolicy(4);
    policy.max_respawns = 0;
    Bench bench(policy);
    bench.Run();
    bench.CommitAll(5);
    if (!equal) bench.digests[0][0] = 8;
    bench.Exit(1);
    ASSERT_TRUE(bench.Ended());
    EXPECT_EQ(bench.Ended()->exit_code, equal ? kExitResumable : kExitFailed) << bench.Ended()->text;
    EXPECT_EQ(bench.Orders(Phase::kDump, 0).empty(), !equal);
  }
}

TEST(Verify, SaysWhatNothingCouldBeComparedWith) {
  Policy policy = Bench::QuickPolicy(4);
  policy.verify_every = 4;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_NE(closed[0].record.reasons.back().text.find("layout 0 of rank 1 comes from rank 3 alone"), std::string::npos)
      << closed[0].record.reasons.back().text;
}

TEST(Verify, WhatWasAgreedOnAtThisVeryStepIsAThirdOpinion) {
  Policy policy = Bench::QuickPolicy(4);
  policy.verify_every = 4;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);  // all agree at step 5
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.CommitAll(5);
  bench.digests[3][0] = bench.digests[1][0] = 8;  // rank 3 rots, and rank 1 is given its state
  bench.Exit(1);
  ASSERT_TRUE(bench.Ended()) << "nobody has what was agreed on";
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
}

Bench Comparing(uint64_t save_every = 0) {
  Policy policy = Bench::QuickPolicy(4);
  policy.verify_every = 4;
  policy.save_every = save_every;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(8);
  bench.hold = Phase::kVerify;
  return bench;
}

void ParkAtStep(Bench& bench, uint64_t step) {
  for (int r = 0; r < 4; ++r) bench.Say(r, SavePoint{Step(step)});
}

void AnswerAll(Bench& bench, uint64_t of_rank_1) {
  for (int r = 0; r < 4; ++r)
    bench.Say(r, PhaseDone{.phase = Phase::kVerify, .digests = {{0, r == 1 ? of_rank_1 : 1}}});
}

TEST(PeriodicVerify, ComparesAtItsStepsAndGoesOn) {
  Bench bench = Comparing();
  const size_t before = bench.Orders(Phase::kVerify, 0).size();
  ParkAtStep(bench, 8);
  ASSERT_EQ(bench.Orders(Phase::kVerify, 0).size(), before + 1);
  EXPECT_TRUE(bench.Sent<ContinueOrder>().empty());
  AnswerAll(bench, 1);
  EXPECT_EQ(bench.Sent<ContinueOrder>().size(), 4u);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "nobody asked for a save";
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.incidents(), 0u);
}

TEST(PeriodicVerify, CopiesThatDifferGoBackToACheckpointOrStop) {
  Bench bench = Comparing();
  ParkAtStep(bench, 8);
  AnswerAll(bench, 2);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty()) << "nobody knows which copy is right";

  Bench saved = Comparing();
  saved.Say(0, Published{Step(4), "checkpoints"});
  ParkAtStep(saved, 8);
  AnswerAll(saved, 2);
  AnswerAll(saved, 1);  // VERIFY after the reload
  EXPECT_EQ(saved.core.phase(), Phase::kRunning);
  ASSERT_FALSE(saved.Orders(Phase::kRepair, 0).empty());
  EXPECT_EQ(saved.Orders(Phase::kRepair, 0).back().rung, Rung::kReload);
  EXPECT_EQ(saved.Orders(Phase::kRepair, 0).back().step, Step(4));
  // The step that failed comes again, and is compared again.
  saved.CommitAll(8);
  const size_t before = saved.Orders(Phase::kVerify, 0).size();
  ParkAtStep(saved, 8);
  EXPECT_EQ(saved.Orders(Phase::kVerify, 0).size(), before + 1);
}

TEST(PeriodicVerify, AGapThatHealsMeanwhileChangesNothing) {
  Bench bench = Comparing();
  ParkAtStep(bench, 8);
  bench.Close(2);
  ASSERT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Rejoin(2);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  AnswerAll(bench, 2);
  ASSERT_TRUE(bench.Ended());
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_FALSE(closed.empty());
  EXPECT_NE(closed.back().record.cause.find("at step 8"), std::string::npos) << closed.back().record.cause;
}

TEST(PeriodicVerify, ComesBeforeEverySave) {
  Bench bench = Comparing(3);
  bench.CommitAll(9);
  ParkAtStep(bench, 9);
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  AnswerAll(bench, 1);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
}

TEST(PeriodicVerify, ASaveAskedForMeanwhileIsMade) {
  Bench bench = Comparing();
  ParkAtStep(bench, 8);
  bench.Feed(OperatorSave{});
  EXPECT_TRUE(bench.Orders(Phase::kDump, 0).empty());
  AnswerAll(bench, 1);
  EXPECT_EQ(bench.Orders(Phase::kDump, 0).size(), 1u);
}

TEST(PeriodicVerify, ARankThatDoesNotAnswerIsGivenUp) {
  Bench bench = Comparing();
  ParkAtStep(bench, 8);
  for (int r = 0; r < 3; ++r) bench.Say(r, PhaseDone{.phase = Phase::kVerify, .digests = {{0, 1}}});
  bench.Pass(bench.core.policy().RepairLimit() + bench.core.policy().AnswerSlack() + 100ms);
  EXPECT_EQ(bench.Killed(), std::set<int>{3});
}

}  // namespace
}  // namespace kintsugi::core
