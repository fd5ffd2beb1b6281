// A run goes on in a smaller world: which ranks form it, what those that leave are told, and what a fault in between does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/base/check.h"
#include "runtime/core/offers.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

std::vector<Rank> Ranks(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (int value : values) ranks.emplace_back(value);
  return ranks;
}

// ---- which world ---------------------------------------------------------------------------------------------------

using OfferMap = std::map<int, Offer>;

OfferMap OffersOf(const std::vector<std::vector<Rank>>& slices, const std::vector<int>& worlds) {
  OfferMap offers;
  for (const auto& slice : slices)
    for (Rank rank : slice) offers[rank.value()] = {slice, worlds};
  return offers;
}

Result<OfferedWorlds> Of(const Crew& crew, const OfferMap& offers) {
  return OfferedBy(crew, [&](Rank rank) -> const Offer* {
    const auto found = offers.find(rank.value());
    return found == offers.end() ? nullptr : &found->second;
  });
}

Result<Crew> Smaller(const OfferMap& offers, const Crew& crew, std::initializer_list<int> lost,
                     std::initializer_list<int> weak = {}) {
  const std::vector<Rank> weaker = Ranks(weak);
  return ChooseSmaller(crew, Of(crew, offers).value(), Ranks(lost),
                       [&](Rank rank) { return std::find(weaker.begin(), weaker.end(), rank) != weaker.end(); });
}

TEST(Offers, TheLargestWorldThatIsOfferedIsChosen) {
  const OfferMap each = OffersOf({Ranks({0}), Ranks({1}), Ranks({2}), Ranks({3})}, {1, 2, 3, 4});
  EXPECT_EQ(Smaller(each, Crew(4), {1})->ranks(), Ranks({0, 2, 3}));
  EXPECT_EQ(Smaller(each, Crew(4), {0, 3})->ranks(), Ranks({1, 2}));
  const OfferMap even = OffersOf({Ranks({0}), Ranks({1}), Ranks({2}), Ranks({3})}, {2, 4});
  EXPECT_EQ(Smaller(even, Crew(4), {1})->ranks(), Ranks({0, 2})) << "of those that are well the last one leaves";
  EXPECT_EQ(Smaller(even, Crew(4), {1}, {0})->ranks(), Ranks({2, 3})) << "first who would need a repair";
}

TEST(Offers, ASliceLeavesAsAWhole) {
  const OfferMap pairs = OffersOf({Ranks({0, 1}), Ranks({2, 3}), Ranks({4, 5})}, {2, 4, 6});
  EXPECT_EQ(Smaller(pairs, Crew(6), {2})->ranks(), Ranks({0, 1, 4, 5}));
  EXPECT_EQ(Smaller(pairs, Crew(6), {1, 4})->ranks(), Ranks({2, 3}));
}

TEST(Offers, WhereNoWorldIsSmallEnoughItSaysWhichThereAre) {
  const OfferMap halves = OffersOf({Ranks({0}), Ranks({1}), Ranks({2}), Ranks({3})}, {3, 4});
  const Result<Crew> none = Smaller(halves, Crew(4), {0, 1});
  EXPECT_EQ(none.status().message(),
            "no world of 2 ranks or fewer is offered that its slices of 1 make up: offered are 3, 4");
}

TEST(Offers, ThatDoNotFitTogetherAreRefusedByName) {
  const auto why = [](const OfferMap& offers) { return Of(Crew(4), offers).status().message(); };
  OfferMap offers = OffersOf({Ranks({0, 1}), Ranks({2, 3})}, {2, 4});
  EXPECT_EQ(why(offers), "");
  offers[3].worlds = {4};
  EXPECT_EQ(why(offers), "rank 0 offers worlds of 2, 4 ranks, rank 3 of 4");
  offers[3].worlds = {};
  EXPECT_EQ(why(offers), "rank 0 offers other worlds, rank 3 none");
  offers[3] = {Ranks({1, 3}), {2, 4}};
  EXPECT_EQ(why(offers), "rank 1 is in two slices, by what rank 3 and others offer");
  offers[3] = {Ranks({3}), {2, 4}};
  EXPECT_EQ(why(offers), "rank 3 is in two slices, by what rank 3 and others offer");
  offers[3] = {Ranks({2}), {2, 4}};
  EXPECT_EQ(why(offers), "the slice that rank 3 offers is without it");
  offers[3] = {Ranks({3, 4}), {2, 4}};
  EXPECT_EQ(why(offers), "the slice that rank 3 offers has rank 4, which takes no part");
  offers[3] = {Ranks({2, 3}), {0, 4}};
  EXPECT_EQ(why(offers), "the worlds that rank 3 offers, 0, 4, are not ascending from 1 on, without repeats");
}

TEST(Offers, OfAnUnknownRankItsSliceKnows) {
  OfferMap pairs = OffersOf({Ranks({0, 1}), Ranks({2, 3})}, {2, 4});
  pairs.erase(1);  // lost with the controller before
  EXPECT_EQ(Of(Crew(4), pairs)->all.size(), 2u);
  pairs.erase(0);
  EXPECT_EQ(Of(Crew(4), pairs)->all, (std::vector<std::vector<Rank>>{Ranks({0, 1}), Ranks({2, 3})}))
      << "what the others leave";
  EXPECT_TRUE(Of(Crew(4), {})->all.empty());
  OfferMap odd = OffersOf({Ranks({1, 2})}, {2});
  EXPECT_EQ(Of(Crew(3), odd).status().message(),
            "nobody here knows the slices of 1 ranks, rank 0 among them, and so many are not made up of slices of 2");
}

TEST(Offers, SlicesThatNobodyKnowsLeaveTogether) {
  OfferMap pairs = OffersOf({Ranks({0, 4}), Ranks({1, 5}), Ranks({2, 3})}, {2, 4, 6});
  for (int rank : {0, 1, 4, 5}) pairs.erase(rank);  // lost with the controller before
  const Crew crew(6);
  const OfferedWorlds offered = Of(crew, pairs).value();
  EXPECT_EQ(offered.all, (std::vector<std::vector<Rank>>{Ranks({0, 1, 4, 5}), Ranks({2, 3})}));
  const auto nobody = [](Rank) { return false; };
  EXPECT_EQ(ChooseSmaller(crew, offered, Ranks({4}), nobody).value().ranks(), Ranks({2, 3}));
  EXPECT_EQ(ChooseSmaller(crew, offered, Ranks({2}), nobody).value().ranks(), Ranks({0, 1, 4, 5}));
  EXPECT_EQ(ChooseFewer(crew, offered, 4).value().ranks(), Ranks({0, 1, 4, 5}));
  EXPECT_EQ(ChooseFewer(crew, offered, 2).status().code(), StatusCode::kNotFound)
      << "of the four two would have to leave";

  const Crew left = crew.Without(Ranks({0, 1, 4, 5}));
  const OfferedWorlds theirs = Of(left, pairs).value();
  const auto more = [&](int ranks) {
    return ChooseMore(
        left, theirs, ranks, [](Rank) { return true; },
        [&](Rank rank) -> const Offer* {
          const auto found = pairs.find(rank.value());
          return found == pairs.end() ? nullptr : &found->second;
        });
  };
  EXPECT_EQ(more(6).value().ranks(), crew.ranks());
  EXPECT_EQ(more(4).value().ranks(), Ranks({0, 1, 2, 3})) << "neighbours, for want of a better guess";
  pairs[0] = {Ranks({0, 4}), {2, 4, 6}};  // which says so, and does not fit
  EXPECT_EQ(more(4).value().ranks(), Ranks({0, 2, 3, 4}));
}

// ---- a run ---------------------------------------------------------------------------------------------------------

// Four data-parallel ranks that each hold everything and can run in any number; nobody is replaced.
Bench Elastic(int respawns = 0) {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = respawns;
  policy.save_directory = "saves";
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {Ranks({0, 1, 2, 3}), 4};
    bench.offers[rank] = {{Rank(rank)}, {1, 2, 3, 4}};
  }
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

TEST(Shrink, WhoIsLostForGoodIsDoneWithout) {
  Bench bench = Elastic();
  bench.seen.clear();
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed.front().record.rung, Rung::kShrink);
  EXPECT_EQ(closed.front().record.step, Step(5)) << "all meet where they stand";
  EXPECT_EQ(closed.front().record.left, Ranks({1}));
  EXPECT_EQ(closed.front().record.bytes_moved, 0u);
  EXPECT_EQ(bench.core.crew().ranks(), Ranks({0, 2, 3}));
  for (int rank : {0, 2, 3}) {
    const auto orders = bench.Orders(Phase::kRebuild, rank);
    ASSERT_EQ(orders.size(), 1u) << rank;
    EXPECT_EQ(orders.front().crew, Ranks({0, 2, 3}));
  }
  EXPECT_EQ(bench.Orders(Phase::kRebuild, 2).front().partners, Ranks({0, 3}));
  const auto changed = bench.All<CrewChanged>();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed.front().ranks, Ranks({0, 2, 3}));
}

TEST(Shrink, IsNotTakenWhereAReplacementCanCome) {
  Bench bench = Elastic(1);
  bench.Exit(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.core.crew().whole());
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRespawn);
  bench.CommitAll(6);
  bench.Exit(1);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kShrink) << "that was the last one";
}

TEST(Shrink, GoesOnFromWorldToWorldAsLongAsOneIsOffered) {
  Bench bench = Elastic();
  bench.Exit(1);
  bench.CommitAll(6);
  bench.Exit(3);
  EXPECT_EQ(bench.core.crew().ranks(), Ranks({0, 2}));
  bench.CommitAll(7);
  bench.Exit(0);
  EXPECT_EQ(bench.core.crew().ranks(), Ranks({2}));
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(Shrink, IsRefusedByNameWhereItIsForbiddenOrBytesWouldMove) {
  const auto why = [](const std::function<void(Policy&)>& set, int replicas) {
    Policy policy = Bench::QuickPolicy(4);
    policy.max_respawns = 0;
    policy.save_directory = "saves";
    set(policy);
    Bench bench(policy);
    for (int rank = 0; rank < 4; ++rank) {
      bench.claims[rank][0] = {Ranks({0, 1, 2, 3}), replicas};
      bench.offers[rank] = {{Rank(rank)}, {1, 2, 3, 4}};
    }
    bench.Run();
    bench.CommitAll(5);
    bench.Exit(1);
    const std::vector<IncidentClosed> closed = bench.All<IncidentClosed>();
    for (const RungReason& reason : closed.back().record.reasons)
      if (reason.rung == Rung::kShrink) return reason.text;
    return std::string("nothing is said of it");
  };
  EXPECT_EQ(why([](Policy& policy) { policy.shrinks = false; }, 4), "a smaller world is forbidden (Policy::shrinks)");
  EXPECT_EQ(
      why([](Policy&) {}, 2),
      "layout 0 is cut over the ranks of rank 0's data-parallel group: among 3 ranks its bytes would have to move");
}

// Two slices of two: who is well in the slice that leaves stays parked, and is told so only once the others went on.
Bench InPairs() {
  Policy policy = Bench::QuickPolicy(4);
  policy.max_respawns = 0;
  policy.save_directory = "saves";
  Bench bench(policy);
  for (int rank = 0; rank < 4; ++rank) {
    bench.claims[rank][0] = {rank % 2 == 0 ? Ranks({0, 2}) : Ranks({1, 3}), 2};
    bench.offers[rank] = {rank < 2 ? Ranks({0, 1}) : Ranks({2, 3}), {2, 4}};
  }
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

TEST(Shrink, WhoLeavesInGoodHealthEndsContentOnceTheRunWentOn) {
  Bench bench = InPairs();
  bench.seen.clear();
  bench.hold = Phase::kRollback;
  bench.Exit(3);
  EXPECT_TRUE(bench.Sent<EndOrder>().empty()) << "not before all are through";
  EXPECT_EQ(bench.member(2).life, Life::kReady);
  bench.hold.reset();
  bench.Pass(10s);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const auto ended = bench.Sent<EndOrder>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.front().first, Rank(2));
  EXPECT_EQ(ended.front().second.exit_code, kExitSuccess);
  EXPECT_EQ(ended.front().second.text, "rank 2 leaves: the run goes on with 2 ranks");
  bench.Exit(2, "exited with code 0");
  EXPECT_EQ(bench.core.phase(), Phase::kRunning) << "its end is no fault";
  EXPECT_EQ(bench.core.incidents(), 1u);
}

TEST(Shrink, AFaultInBetweenComesBackToTheWorldBefore) {
  for (Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kVerify, Phase::kRollback}) {
    Bench bench = InPairs();
    bench.hold = phase;
    bench.Exit(3);
    ASSERT_EQ(bench.core.phase(), phase);
    bench.hold = Phase::kLock;
    bench.Say(0, FaultReport{.kind = FaultKind::kMemoryHigh, .text = "damaged", .since = bench.now});
    ASSERT_EQ(bench.core.phase(), Phase::kLock);
    EXPECT_TRUE(bench.member(2).takes_part) << "it still holds what rank 0 has lost";
    EXPECT_TRUE(bench.member(2).waiting) << "and is asked where it stands";
    EXPECT_TRUE(bench.core.crew().whole());
  }
}

TEST(Shrink, WhoIsDoneWithoutDoesNotComeBack) {
  Bench bench = Elastic();
  bench.Exit(1);
  bench.seen.clear();
  bench.Feed(FromAgent{{bench.core.term(), {}, Rank(1), Incarnation(2)}, JoinRequest{.pid = 77}});
  const auto replies = bench.Sent<JoinReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies.front().second.accepted);
  EXPECT_EQ(replies.front().second.text, "rank 1 takes no part any more: the run went on with ranks 0, 2 and 3 of 4");
  EXPECT_EQ(bench.core.WhyNotReplaced(Rank(1)), "rank 1 takes no part any more");
}

}  // namespace
}  // namespace kintsugi::core
