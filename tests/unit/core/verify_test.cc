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

DigestVerdict Compare(std::vector<uint64_t> digests, std::set<Rank> repaired) {
  Digests by_rank;
  for (uint64_t digest : digests) by_rank.push_back({{0, digest}});
  return CompareDigests(Triple(), by_rank, repaired);
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

TEST(Verify, StreamsADifferingCopyOnceMoreThenRespawnsItsRank) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.hold = Phase::kVerify;
  bench.standing[1] = {GateState::kTorn, Step(6), false};
  bench.Say(1, FaultReport{.kind = FaultKind::kException, .in_update = true});
  const auto verify = [&](uint64_t of_rank_1) {
    for (int r = 0; r < 4; ++r) bench.Say(r, PhaseDone{.phase = Phase::kVerify, .digests = {{0, r == 1 ? of_rank_1 : 1}}});
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

}  // namespace
}  // namespace kintsugi::core
