// Ranks come to a run, or leave it by somebody's word: what is refused at once, what newcomers cost that do not come, and what a
// fault in between does.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/core/offers.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

std::vector<Rank> Places(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (int value : values) ranks.emplace_back(value);
  return ranks;
}

// Four data-parallel ranks that each hold everything and can run in 1, 3 or 4; nobody is replaced, and rank 1 is lost.
Bench WithoutRank1(int respawns = 0) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = respawns;
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {Places({0, 1, 2, 3}), 4};
    bench.offers[rank] = {{Rank(rank)}, {1, 3, 4}};
  }
  bench.Run();
  for (int lost = 0; lost <= respawns; ++lost) {
    bench.CommitAll(5);
    bench.Exit(1);
  }
  bench.CommitAll(6);
  bench.seen.clear();
  return bench;
}

// All come to the end of the step that the newest pause names.
void StandAt(Bench* bench, const std::vector<int>& ranks, uint64_t step) {
  for (int rank : ranks) bench->Say(rank, PauseAck{Step(1)});
  for (int rank : ranks) bench->Say(rank, SavePoint{Step(step)});
}

TEST(Grow, ALostPlaceIsFilledAtTheEndOfAStep) {
  Bench bench = WithoutRank1();
  EXPECT_EQ(bench.core.WhyNotScaled(4), "");
  bench.Feed(OperatorScale{4});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning) << "it starts beside the run";
  EXPECT_EQ(bench.core.crew().ranks(), Places({0, 2, 3}));
  const auto replies = bench.Sent<JoinReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies.front().second.replacement);
  EXPECT_TRUE(replies.front().second.crew.empty()) << "it is told of the world that it comes to: all";
  EXPECT_FALSE(bench.Sent<PauseAt>().empty()) << "once it is ready all meet";
  StandAt(&bench, {0, 2, 3}, 6);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.core.crew().whole());
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed.front().record.rung, Rung::kGrow);
  EXPECT_EQ(closed.front().record.signal, FaultKind::kOperator);
  EXPECT_EQ(closed.front().record.step, Step(6));
  EXPECT_EQ(closed.front().record.came, Places({1}));
  EXPECT_TRUE(closed.front().record.ranks.empty()) << "it is nobody's fault";
  const auto repair = bench.Orders(Phase::kRepair, 1);
  ASSERT_EQ(repair.size(), 1u);
  ASSERT_EQ(repair.front().moves.size(), 1u);
  EXPECT_EQ(repair.front().moves.front().destination, Rank(1));
  EXPECT_EQ(repair.front().moves.front().sources, Places({0, 2, 3}));
  EXPECT_EQ(repair.front().rung, Rung::kGrow);
  const auto changed = bench.All<CrewChanged>();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed.front().came, Places({1}));
  EXPECT_FALSE(bench.core.scales());
}

TEST(Grow, WhoComesWithTheClaimsOfTheLargerWorldFitsThoseOfTheSmaller) {
  Bench bench = WithoutRank1(1);
  bench.claims[2][0] = {Places({0, 2, 3}), 3};  // it is replaced, and registers what there is now
  bench.Exit(2);
  ASSERT_EQ(bench.core.crew().ranks(), Places({0, 2, 3}));
  bench.CommitAll(6);
  bench.Feed(OperatorScale{4});
  StandAt(&bench, {0, 2, 3}, 6);
  EXPECT_TRUE(bench.core.crew().whole());
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Grow, WhatCannotBeHadIsRefusedByNameAndHasNoEffect) {
  Bench bench = WithoutRank1();
  EXPECT_EQ(bench.core.WhyNotScaled(3), "the run has 3 ranks already");
  EXPECT_EQ(bench.core.WhyNotScaled(5), "the run has 4 places, as many as it was started with");
  EXPECT_EQ(bench.core.WhyNotScaled(2), "no world of 2 ranks is offered: offered are 1, 3, 4");
  EXPECT_EQ(bench.core.WhyNotScaled(0), "no world of 0 ranks is offered: offered are 1, 3, 4");
  bench.Feed(OperatorScale{2});
  ASSERT_EQ(bench.All<ScaleRefused>().size(), 1u);
  EXPECT_EQ(bench.All<ScaleRefused>().front().why, "no world of 2 ranks is offered: offered are 1, 3, 4");
  EXPECT_TRUE(bench.All<SpawnProcess>().empty());
  bench.replacements_come = false;
  bench.Feed(OperatorScale{4});
  EXPECT_EQ(bench.core.WhyNotScaled(4), "4 ranks were asked for already, and are not there yet");

  Bench plain(Bench::QuickPolicy(4));
  plain.Run();
  EXPECT_EQ(plain.core.WhyNotScaled(2), "the program offers no other worlds (Agent::OfferWorlds, run.offer)");
  EXPECT_EQ(plain.core.WhyNotScaled(4), "the run has 4 ranks already");
}

TEST(Grow, AnObjectThatIsEachRanksOwnKeepsOthersFromComing) {
  Policy policy = Bench::QuickPolicy(2);
  policy.max_respawns = 0;
  Bench bench(policy);
  for (int rank = 0; rank < 2; ++rank) {
    bench.claims[rank][0] = {Places({0, 1}), 2};
    bench.offers[rank] = {{Rank(rank)}, {1, 2}, "rng"};
  }
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);
  EXPECT_NE(bench.core.WhyNotScaled(2).find("object 'rng' is each rank's own"), std::string::npos);
}

TEST(Grow, ANewcomerThatIsLostWhileOthersAreDoneWithoutCostsNothing) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 0;
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {Places({0, 1, 2, 3}), 4};
    bench.offers[rank] = {{Rank(rank)}, {1, 2, 3, 4}};
  }
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);
  bench.CommitAll(6);
  bench.replacements_come = false;
  bench.Feed(OperatorScale{4});
  bench.hold = Phase::kVerify;
  bench.Exit(2);
  ASSERT_EQ(bench.core.phase(), Phase::kVerify) << "0 and 3 go on alone";
  bench.seen.clear();
  bench.Exit(1, "exited with code 3");
  ASSERT_EQ(bench.All<ScaleRefused>().size(), 1u);
  bench.hold.reset();
  for (int rank : {0, 3}) bench.Say(rank, PhaseDone{.phase = Phase::kVerify, .digests = {{0, 1}}});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.crew().ranks(), Places({0, 3}));
}

TEST(Grow, ANewcomerThatDoesNotComeCostsNothing) {
  const auto end_of = [](const std::function<void(Bench&)>& what) {
    Bench bench = WithoutRank1();
    bench.replacements_come = false;
    bench.Feed(OperatorScale{4});
    what(bench);
    EXPECT_EQ(bench.core.phase(), Phase::kRunning);
    EXPECT_EQ(bench.core.incidents(), 1u) << "the one before";
    EXPECT_EQ(bench.core.crew().ranks(), Places({0, 2, 3}));
    EXPECT_FALSE(bench.core.scales());
    EXPECT_TRUE(bench.Sent<LockOrder>().empty());
    const auto refused = bench.All<ScaleRefused>();
    return refused.size() == 1 ? refused.front().why : "refused " + std::to_string(refused.size()) + " times";
  };
  EXPECT_EQ(end_of([](Bench& bench) { bench.Exit(1, "exited with code 3"); }),
            "rank 1 was lost on its way into the run: exited with code 3");
  EXPECT_EQ(end_of([](Bench& bench) {
              bench.JoinAndReady(1);
              bench.Exit(1, "killed by SIGKILL");
            }),
            "rank 1 was lost on its way into the run: killed by SIGKILL");
  EXPECT_EQ(end_of([](Bench& bench) {
              bench.JoinAndReady(1);
              bench.Say(1, FaultReport{.kind = FaultKind::kRefused, .text = "wrong program"});
            }),
            "rank 1 was lost on its way into the run: wrong program");
  EXPECT_EQ(end_of([](Bench& bench) {
              bench.JoinAndReady(1);
              bench.silent = {1};
              bench.Pass(2s);
            }),
            "rank 1 was lost on its way into the run: no sign of life for 1000 ms");
  EXPECT_EQ(end_of([](Bench& bench) {
              for (uint64_t step = 7; step < 7 + 30; ++step) bench.CommitAll(step), bench.Pass(500ms);
            }),
            "rank 1 did not come within 14 s");
  EXPECT_EQ(end_of([](Bench& bench) {
              bench.offers[1] = {{Rank(1)}, {1, 4}};
              bench.JoinAndReady(1);
            }),
            "rank 0 offers worlds of 1, 3, 4 ranks, rank 1 of 1, 4");
}

TEST(Grow, AFaultInBetweenGoesBackToTheWorldBefore) {
  for (Phase phase :
       {Phase::kLock, Phase::kStop, Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback})
    for (int struck : {1, 2}) {
      if (struck == 1 && phase < Phase::kClean) continue;  // of the run it is not then
      Bench bench = WithoutRank1();
      bench.Feed(OperatorScale{4});
      bench.hold = phase;
      StandAt(&bench, {0, 2, 3}, 6);
      ASSERT_EQ(bench.core.phase(), phase);
      bench.hold.reset();
      bench.Exit(struck);
      ASSERT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase) << " " << struck;
      // Without a respawn rank 2 is lost for good, and one of the two that are left cannot be told to be 2.
      EXPECT_EQ(bench.core.crew().size(), struck == 1 ? 3u : 1u) << PhaseName(phase);
      EXPECT_FALSE(bench.core.crew().Has(Rank(1)));
      EXPECT_EQ(bench.member(1).life, Life::kDead) << "who was to come is not kept waiting";
      EXPECT_FALSE(bench.core.scales());
    }
}

// Rank 0 alone has the state, and is lost when the other was found to have it, too.
TEST(Grow, WhereTheOldWorldHasLostAShardTheNewOneGoesOn) {
  for (Phase phase : {Phase::kRepair, Phase::kRollback}) {
    Policy policy = Bench::QuickPolicy(2);
    policy.max_respawns = 0;
    Bench bench(policy);
    for (int rank = 0; rank < 2; ++rank) {
      bench.claims[rank][0] = {Places({0, 1}), 2};
      bench.offers[rank] = {{Rank(rank)}, {1, 2}};
    }
    bench.Run();
    bench.CommitAll(5);
    bench.Exit(1);
    bench.CommitAll(6);
    bench.Feed(OperatorScale{2});
    bench.hold = phase;
    StandAt(&bench, {0}, 6);
    ASSERT_EQ(bench.core.phase(), phase);
    bench.standing[1] = {GateState::kCommitted, Step(6), true};
    bench.hold.reset();
    bench.Exit(0);
    if (phase == Phase::kRepair) {
      EXPECT_EQ(bench.core.phase(), Phase::kEnded) << "nobody had it by then";
      continue;
    }
    ASSERT_EQ(bench.core.phase(), Phase::kRunning);
    EXPECT_EQ(bench.core.crew().ranks(), Places({1}));
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.step, Step(6));
  }
}

TEST(Scale, WhoIsWellLeavesByWord) {
  Bench bench = WithoutRank1();
  bench.Feed(OperatorScale{1});
  StandAt(&bench, {0, 2, 3}, 6);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.crew().ranks(), Places({0})) << "the highest leave";
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kShrink);
  EXPECT_EQ(bench.Sent<EndOrder>().size(), 2u);
  EXPECT_EQ(bench.core.WhyNotScaled(4),
            "of the 3 empty places 1 can be had, in whole slices of 1: 3 are wanted; the last process of rank 2 is not "
            "known to "
            "have ended");
  bench.Exit(2, "exited with code 0");
  bench.Exit(3, "exited with code 0");
  bench.Feed(OperatorScale{4});
  StandAt(&bench, {0}, 6);
  EXPECT_TRUE(bench.core.crew().whole()) << "and come back";
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Scale, SlicesComeAsAWhole) {
  const auto none = [](Rank) -> const Offer* { return nullptr; };
  const auto all = [](Rank) { return true; };
  const OfferedWorlds pairs{{Places({0, 1})}, 2, {2, 4, 6}};
  const Crew crew = Crew(6).Without(Places({2, 3, 4, 5}));
  const auto one = [](Rank rank) { return rank == Rank(3); };
  EXPECT_EQ(ChooseMore(crew, pairs, 4, one, none).status().message(),
            "of the 4 empty places 0 can be had, in whole slices of 2: 2 are wanted");
  EXPECT_EQ(ChooseMore(crew, pairs, 4, all, none)->ranks(), Places({0, 1, 2, 3})) << "a guess";
  const Offer far{Places({3, 5}), {2, 4, 6}}, near{Places({2, 4}), {2, 4, 6}};
  const auto known = [&](Rank rank) { return rank.value() % 2 == 1 ? &far : &near; };
  EXPECT_EQ(ChooseMore(crew, pairs, 4, all, known)->ranks(), Places({0, 1, 2, 4}));
  EXPECT_EQ(ChooseMore(crew, pairs, 6, all, known)->ranks(), Places({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ChooseMore(
                crew, pairs, 4, [](Rank rank) { return rank != Rank(4); }, known)
                ->ranks(),
            Places({0, 1, 3, 5}));
  const OfferedWorlds three{{Places({0, 1}), Places({2, 4}), Places({3, 5})}, 2, {2, 4, 6}};
  EXPECT_EQ(ChooseFewer(Crew(6), three, 4)->ranks(), Places({0, 1, 2, 4}));
  EXPECT_EQ(ChooseFewer(Crew(6), three, 3).status().message(), "no world of 3 ranks is offered: offered are 2, 4, 6");
}

}  // namespace
}  // namespace kintsugi::core
