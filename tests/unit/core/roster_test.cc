// Roster: counts are always those of its members.
#include "runtime/core/roster.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/base/random.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TEST(Roster, CountsAreThoseOfARecountWhateverHappens) {
  Random random(5);
  Roster roster(6);
  for (int i = 0; i < 5000; ++i) {
    Member& member = roster[random.Below(6)];
    switch (random.Below(5)) {
      case 0:
        roster.SetLife(member, static_cast<Life>(random.Below(4)));
        break;
      case 1:
        roster.SetConnected(member, TimePoint());
        break;
      case 2:
        roster.SetClosed(member);
        break;
      case 3:
        roster.SetWaiting(member, random.Chance(0.5));
        if (member.waiting) member.order = LockOrder{};
        break;
      default:
        roster.SetResumed(member, random.Chance(0.5));
    }
    roster.Recount();
    int ready = 0, lost = 0, waiting = 0, unresumed = 0;
    for (const Member& each : roster) {
      ready += each.life == Life::kReady;
      lost += each.life == Life::kReady && !each.connected;
      waiting += each.waiting;
      unresumed += !each.resumed;
    }
    ASSERT_EQ(roster.ready(), ready);
    ASSERT_EQ(roster.lost(), lost);
    ASSERT_EQ(roster.waiting(), waiting);
    ASSERT_EQ(roster.unresumed(), unresumed);
    ASSERT_EQ(roster.all_ready(), ready == 6);
  }
}

TEST(Roster, ALostRankThatComesBackIsNotedAndNoOther) {
  Roster roster(1);
  Member& member = roster.At(Rank(0));
  const TimePoint began(10s), back(20s);
  roster.SetConnected(member, began);  // it joins: it was not there before
  roster.SetLife(member, Life::kReady);
  EXPECT_EQ(roster.returned_at(), TimePoint());
  roster.SetClosed(member);
  EXPECT_TRUE(member.lost());
  roster.SetConnected(member, back);
  EXPECT_EQ(roster.returned_at(), back);
}

TEST(Roster, WhoIsNotWaitedForHasNoOrder) {
  Roster roster(1);
  Member& member = roster.At(Rank(0));
  roster.SetWaiting(member, true);
  member.order = LockOrder{};
  roster.SetWaiting(member, false);
  EXPECT_FALSE(member.order);
  member.order = LockOrder{};
  EXPECT_THROW(roster.Recount(), CheckFailure);
}

TEST(Roster, WhatCannotBeOfAMemberIsAFailedCheck) {
  const auto holds = [](auto change) {
    Roster roster(1);
    roster.Check();
    change(roster, roster.At(Rank(0)));
    EXPECT_THROW(roster.Check(), CheckFailure);
  };
  holds([](Roster& roster, Member& member) { roster.SetWaiting(member, true); });
  holds([](Roster& roster, Member& member) {
    roster.SetLife(member, Life::kDead);
    roster.SetConnected(member, TimePoint());
  });
  holds([](Roster&, Member& member) { member.unconfirmed = member.incarnation.Next(); });
}

TEST(Roster, StopsWaitingForAllAtOnceAndLeavesTheOtherCounts) {
  Roster roster(3);
  for (Member& member : roster) {
    roster.SetLife(member, Life::kReady);
    roster.SetWaiting(member, true);
    member.order = LockOrder{};
  }
  roster.SetResumed(roster.At(Rank(1)), false);
  roster.StopWaiting();
  roster.Recount();
  EXPECT_EQ(roster.waiting(), 0);
  EXPECT_EQ(roster.ready(), 3);
  EXPECT_EQ(roster.unresumed(), 1);
  for (const Member& member : roster) EXPECT_FALSE(member.waiting || member.order);
}

TEST(Roster, CountsAndLeadsThroughThoseWhoTakePart) {
  Roster roster(4);
  for (size_t r = 0; r < 4; ++r) roster.SetLife(roster[r], Life::kReady);
  roster.SetLife(roster.At(Rank(1)), Life::kDead);
  EXPECT_FALSE(roster.all_ready());
  roster.Change(roster.crew().Without({Rank(1)}));
  EXPECT_TRUE(roster.all_ready()) << "who is gone takes no part";
  EXPECT_EQ(roster.lost(), 3) << "live, without a connection";
  std::vector<Rank> seen;
  for (Member& member : roster) {
    member.respawns = 7;
    EXPECT_TRUE(member.takes_part);
  }
  EXPECT_EQ(roster.At(Rank(1)).respawns, 0);
  EXPECT_EQ(roster.At(Rank(3)).respawns, 7);
  EXPECT_EQ(roster.Where([](const Member&) { return true; }), roster.crew().ranks());
  roster.Check();
}

TEST(Roster, AnAttemptThatFailsGoesBackToTheCrewOfTheRun) {
  Roster roster(3);
  const Crew whole = roster.crew();
  roster.Change(whole.Without({Rank(0)}));
  roster.Revert();
  EXPECT_EQ(roster.crew(), whole);
  roster.Change(whole.Without({Rank(0)}));
  roster.Keep();
  roster.Revert();
  EXPECT_EQ(roster.crew().ranks(), (std::vector<Rank>{Rank(1), Rank(2)}));
  roster.Check();
}

TEST(Roster, NobodyIsWaitedForWhereTheCrewChanges) {
  Roster roster(2);
  roster.SetLife(roster[0], Life::kReady);
  roster.SetWaiting(roster[0], true);
  EXPECT_THROW(roster.Change(roster.crew().Without({Rank(1)})), CheckFailure);
}

TEST(Roster, NamesARankOutsideTheWorld) {
  Roster roster(2);
  EXPECT_TRUE(roster.Has(Rank(1)));
  for (const int rank : {-1, 2}) {
    EXPECT_FALSE(roster.Has(Rank(rank)));
    EXPECT_THROW(roster.At(Rank(rank)), CheckFailure);
  }
}

TEST(Roster, WhatIsCountedIsChangedByItAlone) {
  static_assert(!std::is_assignable_v<decltype(Member::life)&, Life>);
  static_assert(!std::is_assignable_v<decltype(Member::waiting)&, bool>);
  static_assert(!std::is_assignable_v<decltype(Member::connected)&, bool>);
  static_assert(!std::is_assignable_v<decltype(Member::resumed)&, bool>);
}

}  // namespace
}  // namespace kintsugi::core
