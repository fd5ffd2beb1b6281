// Hosts that stay away: when the run goes on without them, and when their places are filled again.
#include <gtest/gtest.h>

#include "runtime/core/empty_places.h"
#include "runtime/core/fresh_lives.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

std::vector<Rank> Seats(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (int value : values) ranks.emplace_back(value);
  return ranks;
}

// Hosts of two ranks that each hold everything; of the last one nothing is heard any more, and it is waited for.
Bench WithTheLastHostAway(int hosts, std::vector<int> worlds = {1, 2, 3, 4, 6}) {
  const int size = 2 * hosts;
  Policy policy = Bench::QuickPolicy(size);
  policy.needs_consent = true;
  policy.node_ranks = 2;
  Bench bench(policy);
  for (int rank = 0; rank < size; ++rank) {
    std::vector<Rank> all;
    for (int each = 0; each < size; ++each) all.emplace_back(each);
    bench.claims[rank][0] = {all, size};
    if (!worlds.empty()) bench.offers[rank] = {{Rank(rank)}, worlds};
  }
  bench.Run();
  bench.CommitAll(5);
  bench.silent = bench.mute = {size - 2, size - 1};
  bench.replacements_come = false;
  bench.Pass(policy.silence + 50ms);
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
  return bench;
}

// ... and the run has gone on without it.
Bench WithoutTheLastHost(int hosts) {
  Bench bench = WithTheLastHostAway(hosts);
  bench.Feed(NodeAbsent{Rank(2 * hosts - 2), 2, true});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  bench.Feed(PlacesAway{Seats({2 * hosts - 2, 2 * hosts - 1})});
  bench.CommitAll(6);
  bench.seen.clear();
  return bench;
}

// Its launcher is here again, and nothing runs there.
void ComeBack(Bench* bench, int hosts, bool replacements_come = true) {
  bench->silent.clear();
  bench->mute.clear();
  bench->replacements_come = replacements_come;
  for (int rank : {2 * hosts - 2, 2 * hosts - 1})
    if (bench->member(rank).unconfirmed)
      bench->Feed(ProcessExited{Rank(rank), *bench->member(rank).unconfirmed, "had ended", std::nullopt});
  bench->Feed(PlacesAway{});
  bench->Pass(50ms);
}

// All come to the end of the step that is named to them.
void Stand(Bench* bench, const std::vector<int>& ranks) {
  for (int rank : ranks) bench->Say(rank, PauseAck{Step(6)});
  const auto pauses = bench->Sent<PauseAt>();
  ASSERT_FALSE(pauses.empty());
  const Step step = pauses.back().second.step;
  bench->CommitAll(step.value());
  for (int rank : ranks) bench->Say(rank, SavePoint{step});
}

TEST(HostsLeave, TheRunGoesOnWithoutOneThatStaysAway) {
  Bench bench = WithTheLastHostAway(3);
  EXPECT_TRUE(bench.core.MayDoWithout(Rank(4), 2));
  EXPECT_FALSE(bench.core.MayDoWithout(Rank(2), 2)) << "it is here";
  EXPECT_FALSE(bench.core.MayDoWithout(Rank(5), 2)) << "outside the world";
  bench.Feed(NodeAbsent{Rank(2), 2, true});
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit) << "what cannot be has no effect";
  bench.Feed(NodeAbsent{Rank(4), 2, true});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.crew().ranks(), Seats({0, 1, 2, 3}));
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.rung, Rung::kShrink);
  EXPECT_EQ(record.left, Seats({4, 5}));
  EXPECT_NE(record.reasons.back().text.find("rank 4 and 1 more are on a node that stays away"), std::string::npos)
      << record.reasons.back().text;
}

TEST(HostsLeave, WithoutAnOfferItIsWaitedFor) {
  Bench bench = WithTheLastHostAway(3, {});
  EXPECT_FALSE(bench.core.MayDoWithout(Rank(4), 2));
  bench.Feed(NodeAbsent{Rank(4), 2, true});
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
  Bench none = WithTheLastHostAway(3, {6});
  EXPECT_FALSE(none.core.MayDoWithout(Rank(4), 2)) << "no smaller one is offered";
}

// Half of all, with the lowest rank, may act for the run; half without it may not, and waits as ever.
TEST(HostsLeave, OfTwoHostsTheOneWithTheLowestRankGoesOn) {
  EXPECT_TRUE(WithTheLastHostAway(2).core.MayDoWithout(Rank(2), 2));
  Policy policy = Bench::QuickPolicy(4);
  policy.needs_consent = true;
  policy.node_ranks = 2;
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {Seats({0, 1, 2, 3}), 4};
    bench.offers[rank] = {{Rank(rank)}, {2, 4}};
  }
  bench.Run();
  bench.CommitAll(5);
  bench.silent = bench.mute = {0, 1};
  bench.replacements_come = false;
  bench.Pass(policy.silence + 50ms);
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_FALSE(bench.core.MayDoWithout(Rank(0), 2));
}

// It is here again before the choice: its ranks come as if nobody had thought of going on without them.
TEST(HostsLeave, OneThatComesBackInBetweenIsDoneWithoutNoMore) {
  Bench bench = WithTheLastHostAway(3);
  bench.hold = Phase::kClean;
  bench.Feed(NodeAbsent{Rank(4), 2, true});
  ASSERT_EQ(bench.core.phase(), Phase::kClean);
  bench.Feed(NodeAbsent{Rank(4), 2, false});
  bench.silent.clear();
  bench.mute.clear();
  bench.JoinAndReady(4);
  bench.JoinAndReady(5);
  bench.hold.reset();
  bench.replacements_come = true;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_TRUE(bench.core.crew().whole()) << record.reasons.back().text;
  EXPECT_EQ(record.rung, Rung::kRespawn);
}

TEST(HostsLeave, ThePlacesOfOneThatIsBackAreFilledByThemselves) {
  Bench bench = WithoutTheLastHost(3);
  bench.Pass(3s);
  EXPECT_TRUE(bench.All<SpawnProcess>().empty()) << "it is away";
  ComeBack(&bench, 3);
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 2u);
  Stand(&bench, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  ASSERT_TRUE(bench.core.crew().whole());
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.rung, Rung::kGrow);
  EXPECT_EQ(record.came, Seats({4, 5}));
  EXPECT_NE(record.cause.find("places whose nodes were away are filled again"), std::string::npos) << record.cause;
}

// Lost on their way three times, while its node is here: no more, until it comes anew.
TEST(HostsLeave, ThreeTimesInVainIsEnough) {
  Bench bench = WithoutTheLastHost(3);
  ComeBack(&bench, 3, /*replacements_come=*/false);
  for (int times = 1; times <= 3; ++times) {
    ASSERT_EQ(bench.All<SpawnProcess>().size(), 2u * static_cast<size_t>(times));
    bench.Exit(4, "exited with code 1");
    bench.Exit(5, "killed by SIGKILL");
    EXPECT_EQ(bench.core.incidents(), 1u) << "the run does not hear of it";
    for (uint64_t step = 0; step < 20; ++step)
      bench.CommitAll(7 + 20u * static_cast<uint64_t>(times) + step), bench.Pass(1s);
  }
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 6u);
  bench.Feed(PlacesAway{Seats({4, 5})});
  ComeBack(&bench, 3);
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 8u);
}

TEST(HostsLeave, OneThatIsLostAgainWhileItsRanksComeCostsNothing) {
  Bench bench = WithoutTheLastHost(3);
  ComeBack(&bench, 3, /*replacements_come=*/false);
  bench.JoinAndReady(4);
  bench.Close(4);
  bench.Feed(PlacesAway{Seats({4, 5})});
  const auto refused = bench.All<ScaleRefused>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.front().why, "rank 4 was lost on its way into the run: its node is away");
  EXPECT_EQ(bench.core.incidents(), 1u);
  EXPECT_TRUE(bench.Sent<LockOrder>().empty());
  bench.Pass(5s);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

// A rank whose own process cannot be replaced is not begun again and again.
TEST(HostsLeave, WhatWasLostWhileItsHostWasHereStaysAway) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 0;
  policy.node_ranks = 2;
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {Seats({0, 1, 2, 3}), 4};
    bench.offers[rank] = {{Rank(rank)}, {1, 2, 3, 4}};
  }
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(3);
  ASSERT_EQ(bench.core.crew().size(), 3u);
  bench.seen.clear();
  bench.Pass(5s);
  EXPECT_TRUE(bench.All<SpawnProcess>().empty());
  EXPECT_EQ(bench.core.WhyNotScaled(4), "") << "somebody may ask";
}

TEST(HostsLeave, SomebodysLastWordIsTheMost) {
  Bench bench = WithoutTheLastHost(3);
  bench.Pass(50ms);
  EXPECT_NE(bench.core.WhyNotScaled(2).find("are no majority"), std::string::npos) << bench.core.WhyNotScaled(2);
  bench.Feed(OperatorScale{3});
  Stand(&bench, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.crew().ranks(), Seats({0, 1, 2}));
  EXPECT_EQ(bench.core.ranks_wanted(), 3);
  bench.Exit(3, "exited with code 0");
  bench.seen.clear();
  ComeBack(&bench, 3);
  bench.Pass(3s);
  EXPECT_TRUE(bench.All<SpawnProcess>().empty());
  EXPECT_EQ(bench.core.WhyNotScaled(6), "");
}

TEST(HostsLeave, AnOrderGoesBeforeWhatHappensByItself) {
  Bench bench = WithoutTheLastHost(3);
  ComeBack(&bench, 3, /*replacements_come=*/false);
  ASSERT_TRUE(bench.core.scales());
  EXPECT_EQ(bench.core.WhyNotScaled(6), "") << "it becomes the order's";
  EXPECT_EQ(bench.core.WhyNotScaled(3), "");
  bench.Feed(OperatorScale{3});
  Stand(&bench, {0, 1, 2, 3});
  EXPECT_EQ(bench.core.crew().ranks(), Seats({0, 1, 2}));
  EXPECT_EQ(bench.Killed(), (std::set<int>{4, 5})) << "who was on the way";
  EXPECT_TRUE(bench.All<ScaleRefused>().empty()) << "of the other one nobody is told";
}

TEST(HostsLeave, WhatIsAwayCannotBeAskedFor) {
  Bench bench = WithoutTheLastHost(3);
  EXPECT_NE(bench.core.WhyNotScaled(6).find("the node of rank 4 is away"), std::string::npos)
      << bench.core.WhyNotScaled(6);
}

// The controller after this one hears of the crew by the ranks, and of nobody's reasons.
TEST(HostsLeave, WhoTakesOverFillsPlacesToo) {
  Policy policy = Bench::QuickPolicy(4);
  policy.node_ranks = 2;
  policy.takes_over = policy.began = true;
  policy.ranks_wanted = 3;
  Bench bench(policy, {2, 1});
  EXPECT_EQ(bench.core.ranks_wanted(), 3);
}

TEST(EmptyPlaces, AreFilledWhereTheirHostIsHere) {
  EmptyPlaces places(1s);
  const TimePoint now(10s);
  EXPECT_TRUE(places.MayBeFilled(Rank(1)));
  places.OnLost(Rank(1));
  EXPECT_FALSE(places.MayBeFilled(Rank(1))) << "the next one would be lost as well";
  places.TellAway({Rank(1)});
  EXPECT_FALSE(places.IsHere(Rank(1)));
  EXPECT_FALSE(places.MayBeFilled(Rank(1)));
  places.TellAway({});
  EXPECT_TRUE(places.MayBeFilled(Rank(1))) << "its node has come anew";
  places.OnInVain({Rank(1)}, now);
  EXPECT_TRUE(places.MayBeFilled(Rank(1)));
  EXPECT_FALSE(places.MayBeFilledAt(now + 1s));
  EXPECT_TRUE(places.MayBeFilledAt(now + 2s));
  places.OnInVain({Rank(1)}, now);
  places.OnInVain({Rank(1)}, now);
  EXPECT_FALSE(places.MayBeFilled(Rank(1)));
  places.OnFilled(Rank(1));
  EXPECT_TRUE(places.MayBeFilled(Rank(1)));
}

TEST(FreshLives, CountOnceAllOfACrewThatHasThemWereInTheirLoops) {
  FreshLives lives;
  lives.OnStarted(Rank(1), Incarnation(1), Generation());
  EXPECT_FALSE(lives.IsFresh(Rank(1), Incarnation(1))) << "before the run has begun nobody had anything to promise";
  lives.OnStarted(Rank(1), Incarnation(2), Generation(3));
  EXPECT_TRUE(lives.IsFresh(Rank(1), Incarnation(2)));
  EXPECT_FALSE(lives.IsFresh(Rank(1), Incarnation(1)));
  lives.OnPulse(Generation(3), {});
  EXPECT_TRUE(lives.IsFresh(Rank(1), Incarnation(2))) << "in which it was not";
  lives.OnPulse(Generation(4), {Rank(0), Rank(2)});
  EXPECT_TRUE(lives.IsFresh(Rank(1), Incarnation(2))) << "it waits beside the run";
  lives.OnPulse(Generation(5), {Rank(0), Rank(1)});
  EXPECT_FALSE(lives.IsFresh(Rank(1), Incarnation(2)));
  lives.OnPulse(Generation(6), {Rank(0)});
  EXPECT_FALSE(lives.IsFresh(Rank(1), Incarnation(2))) << "it has been in the run";
}

}  // namespace
}  // namespace kintsugi::core
