// A node that comes back: which of its processes are ended, and which ends the controller is told of.
#include "runtime/core/node_return.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using What = ReturnAction::What;

// A world of four; the node has ranks 2 and 3.
struct World {
  World() {
    for (size_t r = 0; r < 4; ++r) {
      roster[r].incarnation = Incarnation(1);
      roster.SetLife(roster[r], Life::kReady);
    }
  }
  std::vector<ReturnAction> Compare(const LivesThere& lives) const {
    return CompareLives(roster.all(), {Rank(2), 2}, lives, to_spawn);
  }
  Roster roster{4};
  std::map<Rank, Incarnation> to_spawn;
};

TEST(CompareLives, WhatRunsAsItShouldIsLeftAlone) {
  const World world;
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}, {Rank(3), Incarnation(1)}}), IsEmpty());
}

TEST(CompareLives, AProcessThatIsNotThereHasEndedMeanwhile) {
  const World world;
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}}),
              ElementsAre(ReturnAction{What::kEndedAway, Rank(3), Incarnation(1)}));
}

TEST(CompareLives, OneThatWasGivenUpIsEndedAndItsSuccessorNeverBegan) {
  World world;
  world.roster[2].incarnation = Incarnation(2);
  world.roster.SetLife(world.roster[2], Life::kStarting);
  world.roster[2].unconfirmed = Incarnation(1);
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}, {Rank(3), Incarnation(1)}}),
              ElementsAre(ReturnAction{What::kEnd, Rank(2), Incarnation(1)},
                          ReturnAction{What::kNeverBegan, Rank(2), Incarnation(2)}));
}

TEST(CompareLives, ASuccessorThatWaitsForTheNodeIsNotMissed) {
  World world;
  world.roster[2].incarnation = Incarnation(2);
  world.roster.SetLife(world.roster[2], Life::kStarting);
  world.to_spawn[Rank(2)] = Incarnation(2);
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}, {Rank(3), Incarnation(1)}}),
              ElementsAre(ReturnAction{What::kEnd, Rank(2), Incarnation(1)}));
}

TEST(CompareLives, TheEndOfOneThatNobodyCouldTellIsToldBeforeThatOfItsSuccessor) {
  World world;
  world.roster[3].incarnation = Incarnation(5);
  world.roster[3].unconfirmed = Incarnation(4);
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}}),
              ElementsAre(ReturnAction{What::kHadEnded, Rank(3), Incarnation(4)},
                          ReturnAction{What::kEndedAway, Rank(3), Incarnation(5)}));
}

TEST(CompareLives, AProcessOfARankThatIsDeadToTheControllerIsEnded) {
  World world;
  world.roster.SetLife(world.roster[2], Life::kDead);
  EXPECT_THAT(world.Compare({{Rank(2), Incarnation(1)}, {Rank(3), Incarnation(1)}}),
              ElementsAre(ReturnAction{What::kEnd, Rank(2), Incarnation(1)}));
}

TEST(CompareLives, OtherNodesRanksAreNotLookedAt) {
  World world;
  world.roster[0].incarnation = Incarnation(7);
  EXPECT_THAT(world.Compare({{Rank(0), Incarnation(1)}, {Rank(2), Incarnation(1)}, {Rank(3), Incarnation(1)}}),
              IsEmpty());
  EXPECT_THROW(CompareLives(world.roster.all(), {Rank(3), 2}, {}, {}), CheckFailure) << "rank 4 is nobody";
}

TEST(FindLives, WhoeverTakesOverHearsOfEveryRank) {
  EXPECT_THAT(FindLives({Rank(2), 2}, {{Rank(3), Incarnation(6)}, {Rank(0), Incarnation(1)}}),
              ElementsAre(FoundLife{Rank(2), std::nullopt}, FoundLife{Rank(3), Incarnation(6)}));
}

}  // namespace
}  // namespace kintsugi::core
