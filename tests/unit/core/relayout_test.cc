// State that is cut anew for another crew: who takes part in which phase, what counts as registered from when on, and what a fault
// in each phase comes back to.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/core/offers.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

std::vector<Rank> Places(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (int value : values) ranks.emplace_back(value);
  return ranks;
}

RegistrySummary Holding(const std::string& key) {
  RegistrySummary registry;
  registry.tensors.push_back({.key = key, .dtype = DType::kFloat32, .global_shape = {12}, .local_shape = {3}});
  return registry;
}

// Ranks that cut their state over all of those that take part, `replicas` times among four, and can run in 1 to 4.
struct Cut : Bench {
  explicit Cut(int replicas, const std::function<void(Policy&)>& change = {}) : Bench(PolicyOf(change)) {
    for (int rank = 0; rank < 4; ++rank) {
      claims[rank][0] = {Places({0, 1, 2, 3}), replicas};
      offers[rank] = {{Rank(rank)}, {1, 2, 3, 4}, "", true};
    }
    Run();
    first_orders = Sent<SnapshotOrder>();
    CommitAll(6);
    seen.clear();
  }
  std::vector<std::pair<Rank, SnapshotOrder>> first_orders;
  static Policy PolicyOf(const std::function<void(Policy&)>& change) {
    Policy policy = QuickPolicy(4);
    policy.max_respawns = 0;
    if (change) change(policy);
    return policy;
  }
  // What the ranks say they hold among these.
  void CutFor(std::initializer_list<int> crew, int replicas = 1) {
    next.clear();
    for (int rank : crew) next[rank].layouts[0] = {Places(crew), replicas};
  }
  // All come to the end of the step, with an order under way.
  void StandAt(std::initializer_list<int> ranks) {
    for (int rank : ranks) Say(rank, PauseAck{Step(1)});
    for (int rank : ranks) Say(rank, SavePoint{Step(6)});
  }
  void Scale(int to, std::initializer_list<int> present) {
    Feed(OperatorScale{to});
    StandAt(present);
  }
  std::set<int> OrderedIn(Phase phase) const {
    std::set<int> ranks;
    for (const auto& [rank, order] : Sent<PhaseOrder>())
      if (order.phase == phase) ranks.insert(rank.value());
    return ranks;
  }
  std::string Refused() const {
    const auto refused = All<ScaleRefused>();
    return refused.size() == 1 ? refused.front().why : "refused " + std::to_string(refused.size()) + " times";
  }
  void ExpectGoesOnWith(std::initializer_list<int> ranks) const {
    EXPECT_EQ(core.phase(), Phase::kRunning);
    EXPECT_EQ(core.crew().ranks(), Places(ranks));
    EXPECT_FALSE(core.scales());
  }
};

TEST(Relayout, WhoLeavesGivesAwayWhatItHoldsFirst) {
  Cut bench(1);
  bench.CutFor({0, 1, 2});
  bench.Scale(3, {0, 1, 2, 3});
  bench.ExpectGoesOnWith({0, 1, 2});
  EXPECT_EQ(bench.OrderedIn(Phase::kRebuild), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(bench.OrderedIn(Phase::kRepair), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(bench.OrderedIn(Phase::kVerify), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(bench.OrderedIn(Phase::kRollback), (std::set<int>{0, 1, 2}));
  const PhaseOrder repair = bench.Orders(Phase::kRepair, 3).front();
  EXPECT_TRUE(repair.relayout);
  EXPECT_EQ(repair.holders, Places({0, 1, 2, 3}));
  EXPECT_EQ(repair.crew, Places({0, 1, 2})) << "it takes no part in what comes";
  EXPECT_TRUE(repair.moves.empty());
  const PhaseOrder rollback = bench.Orders(Phase::kRollback, 0).front();
  EXPECT_TRUE(rollback.relayout);
  EXPECT_EQ(rollback.registered_in, Generation()) << "what was registered first counts until the run goes on";
  const auto ends = bench.Sent<EndOrder>();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends.front().first, Rank(3));
  EXPECT_EQ(ends.front().second.exit_code, 0);
  ASSERT_EQ(bench.All<CrewChanged>().size(), 1u);
  EXPECT_EQ(bench.All<CrewChanged>().front().left, Places({3}));
}

TEST(Relayout, PartnersAreThoseOfTheNewLayoutFromRepairOn) {
  Cut bench(2);
  bench.CutFor({0, 1, 2}, 3);
  bench.Scale(3, {0, 1, 2, 3});
  EXPECT_TRUE(bench.Orders(Phase::kRebuild, 0).front().partners.empty()) << "nobody knows them yet";
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).front().partners, Places({1, 2}));
  EXPECT_TRUE(bench.Orders(Phase::kRepair, 3).front().partners.empty());
  EXPECT_EQ(bench.Orders(Phase::kRollback, 2).front().partners, Places({0, 1}));
}

TEST(Relayout, WhoComesIsFilledByAllThatHoldSomething) {
  Cut bench(1);
  bench.CutFor({0, 1, 2});
  bench.Scale(3, {0, 1, 2, 3});
  bench.Exit(3, "exited with code 0");
  bench.seen.clear();
  bench.CommitAll(6);
  bench.CutFor({0, 1, 2, 3}, 2);
  bench.next.erase(3);  // it registers for those that there are then
  bench.claims[3][0] = {Places({0, 1, 2, 3}), 2};
  bench.Scale(4, {0, 1, 2});
  bench.ExpectGoesOnWith({0, 1, 2, 3});
  ASSERT_FALSE(bench.Orders(Phase::kRepair, 3).empty());
  const PhaseOrder repair = bench.Orders(Phase::kRepair, 3).front();
  EXPECT_EQ(repair.holders, Places({0, 1, 2})) << "it holds nothing";
  EXPECT_EQ(repair.partners, Places({1}));
  EXPECT_EQ(bench.core.members()[3].trust.needs_repair(), false);
}

TEST(Relayout, AFaultBeforeTheRunGoesOnComesBackToWhatWasRegistered) {
  for (Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback}) {
    Cut bench(2, [](Policy& policy) { policy.max_respawns = 1; });
    bench.CutFor({0, 1, 2}, 3);
    bench.hold = phase;
    bench.Scale(3, {0, 1, 2, 3});
    ASSERT_EQ(bench.core.phase(), phase);
    bench.hold.reset();
    bench.Exit(1);
    bench.ExpectGoesOnWith({0, 1, 2, 3});
    EXPECT_NE(bench.Refused().find("a fault came in between"), std::string::npos) << bench.Refused();
    EXPECT_TRUE(bench.Sent<EndOrder>().empty()) << "nobody left";
    const PhaseOrder repair = bench.Orders(Phase::kRepair, 1).back();
    EXPECT_FALSE(repair.relayout);
    ASSERT_EQ(repair.moves.size(), 1u);
    EXPECT_EQ(repair.moves.front().sources, Places({3})) << "its old partner has its shard still";
    EXPECT_EQ(repair.registered_in, Generation());
  }
}

TEST(Relayout, WhereTheOldPiecesAreLostAndTheNewOnesAgreeTheRunGoesOnInTheNewWorld) {
  Cut bench(1);
  bench.CutFor({0, 1, 2}, 3);
  bench.hold = Phase::kRollback;
  bench.Scale(3, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  const Generation cut = bench.core.generation();
  bench.hold.reset();
  for (int rank : {0, 1, 2}) bench.claims[rank] = bench.next[rank].layouts;
  bench.Exit(3);  // who leaves, and held a piece that nobody else had registered before
  bench.ExpectGoesOnWith({0, 1, 2});
  EXPECT_TRUE(bench.All<ScaleRefused>().empty()) << bench.Refused();
  EXPECT_EQ(bench.Orders(Phase::kClean, 0).back().registered_in, cut) << "they are told that it counts";
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).size(), 1u) << "nothing moves any more";
}

TEST(Relayout, ALossThatShowsOnlyInLockIsMetInTheNewWorldToo) {
  Cut bench(1, [](Policy& policy) { policy.max_respawns = 1; });
  bench.CutFor({0, 1, 2}, 3);
  bench.hold = Phase::kRollback;
  bench.Scale(3, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  const Generation cut = bench.core.generation();
  for (int rank : {0, 1, 2}) bench.claims[rank] = bench.next[rank].layouts;
  bench.hold = Phase::kLock;
  bench.Say(
      0, FaultReport{.kind = FaultKind::kException, .text = "thrown"});  // the old world is whole, as far as is known
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  bench.hold.reset();
  bench.Exit(1);
  bench.ExpectGoesOnWith({0, 1, 2});
  const PhaseOrder repair = bench.Orders(Phase::kRepair, 1).back();
  ASSERT_EQ(repair.moves.size(), 1u);
  EXPECT_EQ(repair.moves.front().sources, Places({0, 2}));
  EXPECT_EQ(repair.registered_in, cut);
}

TEST(Relayout, WhereARefusedOrderTurnsOutToBeTheWayOutItsRanksAreWanted) {
  Cut bench(1, [](Policy& policy) { policy.max_respawns = 1; });
  bench.CutFor({0, 1, 2});
  bench.Scale(3, {0, 1, 2, 3});
  bench.Exit(3, "exited with code 0");
  bench.CommitAll(6);
  ASSERT_EQ(bench.core.ranks_wanted(), 3);
  bench.CutFor({0, 1, 2, 3}, 4);
  bench.next.erase(3);  // it registers for those that there are then
  bench.claims[3][0] = {Places({0, 1, 2, 3}), 4};
  bench.hold = Phase::kRollback;
  bench.Scale(4, {0, 1, 2});
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  for (int rank : {0, 1, 2, 3}) bench.claims[rank][0] = {Places({0, 1, 2, 3}), 4};
  bench.hold = Phase::kLock;
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .text = "thrown"});  // which refuses the order
  bench.hold.reset();
  bench.Exit(1);
  EXPECT_EQ(bench.core.crew().ranks(), Places({0, 1, 2, 3}));
  EXPECT_EQ(bench.core.ranks_wanted(), 4);
}

TEST(Relayout, WhoCameHoldsWhatItWasGivenUnlessThatIsDamaged) {
  for (const bool damaged : {false, true}) {
    Cut bench(1, [](Policy& policy) {
      policy.max_respawns = 1;
      policy.save_directory.clear();
    });
    bench.CutFor({0, 1, 2});
    bench.Scale(3, {0, 1, 2, 3});
    bench.Exit(3, "exited with code 0");
    bench.CommitAll(6);
    bench.seen.clear();
    bench.CutFor({0, 1, 2, 3}, 2);
    bench.next.erase(3);  // it registers for those that there are then
    bench.claims[3][0] = {Places({0, 1, 2, 3}), 2};
    bench.hold = Phase::kRollback;
    bench.Scale(4, {0, 1, 2});
    ASSERT_EQ(bench.core.phase(), Phase::kRollback);
    for (int rank : {0, 1, 2, 3}) bench.claims[rank][0] = {Places({0, 1, 2, 3}), 2};
    bench.standing[3] = {GateState::kCommitted, Step(6), true};
    bench.hold.reset();
    if (damaged) {
      bench.hold = Phase::kLock;
      bench.Say(3, FaultReport{.kind = FaultKind::kMemoryLow, .text = "a bit", .damaged_keys = {"a"}});
      bench.hold.reset();
    }
    bench.Exit(1);  // its old piece is nowhere else; its new one is with rank 3
    EXPECT_EQ(bench.Ended().has_value(), damaged);
    if (!damaged) EXPECT_TRUE(bench.core.crew().Has(Rank(3)));
  }
}

TEST(Relayout, OnceTheRunGoesOnTheNewLayoutIsTheRuns) {
  Cut bench(2, [](Policy& policy) { policy.max_respawns = 1; });
  bench.CutFor({0, 1, 2}, 3);
  bench.hold = Phase::kRunning;  // nobody says that it has gone on
  bench.Scale(3, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const Generation cut = bench.core.generation();
  bench.hold.reset();
  for (int rank : {0, 1, 2}) bench.claims[rank] = bench.next[rank].layouts;  // who comes registers what there is
  bench.Exit(1);
  bench.ExpectGoesOnWith({0, 1, 2});
  EXPECT_TRUE(bench.All<ScaleRefused>().empty());
  EXPECT_EQ(bench.Orders(Phase::kClean, 0).back().registered_in, cut) << "who has not heard of it hears it now";
  EXPECT_EQ(bench.Orders(Phase::kRepair, 1).back().moves.front().sources, Places({0, 2}));
}

TEST(Relayout, CopiesThatDifferLeaveWhatWasRegisteredAsGoodAsItWas) {
  Cut bench(2);
  bench.CutFor({0, 1, 2}, 3);
  bench.hold = Phase::kVerify;
  bench.Scale(3, {0, 1, 2, 3});
  ASSERT_EQ(bench.core.phase(), Phase::kVerify);
  bench.hold.reset();
  for (int rank : {0, 1, 2}) bench.Say(rank, PhaseDone{.phase = Phase::kVerify, .digests = {{0, rank == 1 ? 7u : 8u}}});
  bench.ExpectGoesOnWith({0, 1, 2, 3});
  EXPECT_NE(bench.Refused().find("state that was cut anew"), std::string::npos) << bench.Refused();
  EXPECT_TRUE(bench.Killed().empty());
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRetry) << "nobody needs a repair";
}

TEST(Relayout, WhatDoesNotFitTogetherIsRefusedAndTheRunGoesOn) {
  const auto refused = [](const std::function<void(Cut&)>& change) {
    Cut bench(1);
    bench.CutFor({0, 1, 2});
    change(bench);
    bench.Scale(3, {0, 1, 2, 3});
    bench.ExpectGoesOnWith({0, 1, 2, 3});
    EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRetry);
    return bench.Refused();
  };
  EXPECT_NE(refused([](Cut& bench) { bench.next.erase(1); }).find("rank 1 has not said what it holds"),
            std::string::npos);
  EXPECT_NE(refused([](Cut& bench) {
              bench.next[2].layouts[0].ranks = Places({0, 2});
            }).find("layout 0"),
            std::string::npos);
  EXPECT_NE(refused([](Cut& bench) {
              bench.CutFor({0, 1, 2}, 3);
              for (int rank : {0, 1, 2}) bench.next[rank].registry = Holding(rank == 1 ? "a" : "b");
            }).find("'a'"),
            std::string::npos);
}

TEST(Relayout, AHandlerThatRefusesLeavesTheRunAsItWas) {
  for (int times = 0; times < 4; ++times) {
    Cut bench(1);
    bench.CutFor({0, 1, 2});
    for (int order = 0; order <= times; ++order) {
      bench.hold = Phase::kRepair;
      bench.Scale(3, {0, 1, 2, 3});
      ASSERT_EQ(bench.core.phase(), Phase::kRepair);
      bench.hold.reset();
      bench.Say(3, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kInvalidArgument, .text = "a hole"});
      bench.ExpectGoesOnWith({0, 1, 2, 3});
      EXPECT_FALSE(bench.Ended());
      EXPECT_NE(bench.Refused().find("rank 3: a hole"), std::string::npos);
      bench.seen.clear();
      bench.CommitAll(6);
    }
    bench.Scale(3, {0, 1, 2, 3});
    bench.ExpectGoesOnWith({0, 1, 2});
  }
}

TEST(Relayout, ALossIsOneTooWhereThoseThatStayHoldEveryPiece) {
  Cut bench(2);
  bench.CutFor({0, 2, 3}, 3);
  bench.Exit(1);
  bench.ExpectGoesOnWith({0, 2, 3});
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kShrink);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).front().holders, Places({0, 2, 3}));

  Cut alone(1);
  alone.CutFor({0, 2, 3});
  alone.Exit(1);
  ASSERT_TRUE(alone.Ended()) << "its piece is nowhere: it is saved what there is, or nothing";
  EXPECT_TRUE(alone.All<CrewChanged>().empty());

  Cut held(1, [](Policy& policy) { policy.adopts = true; });
  held.CutFor({0, 2, 3});
  held.Feed(StateHeld{Rank(1), HeldState{held.member(1).incarnation, Step(6), true}});
  held.Exit(1);
  EXPECT_TRUE(held.All<CrewChanged>().empty()) << "what a launcher holds is saved, and not cut";
  EXPECT_TRUE(held.OrderedIn(Phase::kRepair).count(0) == 0 || !held.Orders(Phase::kRepair, 0).back().relayout);
}

TEST(Relayout, WhatWasDamagedBeforeIsSoAfterAFaultInRollback) {
  Cut bench(2);
  bench.CutFor({0, 2, 3}, 3);
  bench.Feed(ControllerEvent(Tick{}));
  bench.standing[2] = {GateState::kTorn, Step(7), true};
  bench.hold = Phase::kRollback;
  bench.Exit(1);  // who holds rank 3's shard as well; rank 0 has rank 2's
  ASSERT_EQ(bench.core.phase(), Phase::kRollback);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).front().holders, Places({0, 3}));
  EXPECT_TRUE(bench.core.members()[2].trust.needs_repair()) << "what it has registered is torn still";
  bench.hold.reset();
  bench.Say(3, FaultReport{.kind = FaultKind::kException, .text = "thrown"});
  bench.ExpectGoesOnWith({0, 2, 3});
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0).back().holders, Places({0, 3})) << "again, and not from rank 2";
  EXPECT_FALSE(bench.core.members()[2].trust.needs_repair());
}

TEST(Relayout, WhereItFailsAgainAndAgainTheLadderGoesOn) {
  Cut bench(2);
  bench.Exit(1);  // nobody says what it holds among three
  ASSERT_TRUE(bench.Ended());
  EXPECT_NE(bench.Ended()->exit_code, 0);
  EXPECT_EQ(bench.OrderedIn(Phase::kRepair), std::set<int>{});
  EXPECT_LT(bench.Orders(Phase::kRebuild, 0).size(), 5u);
}

TEST(Relayout, WhatCannotBeDoneYetIsRefusedByName) {
  Cut hosts(1, [](Policy& policy) { policy.needs_consent = true; });
  EXPECT_NE(hosts.core.WhyNotScaled(3).find("on one host alone"), std::string::npos) << hosts.core.WhyNotScaled(3);
  Cut bench(1);
  EXPECT_EQ(bench.core.WhyNotScaled(5), "the run has 4 places, as many as it was started with");
  bench.offers[1].any_layout = false;
  EXPECT_NE(OfferedBy(Crew(4), [&](Rank rank) { return &bench.offers[rank.value()]; })
                .status()
                .message()
                .find("rank 0 offers any layout, rank 1 does not"),
            std::string::npos);
}

// One replica, and all have made the snapshot of step 4; by now they stand at step 6.
struct LostShard : Cut {
  explicit LostShard(uint64_t snapshot_every = 4)
      : Cut(1, [=](Policy& policy) { policy.snapshot_every = snapshot_every; }) {
    if (snapshot_every == 0) return;
    std::map<int, SnapshotOrder> orders;
    for (const auto& [rank, order] : first_orders) orders[rank.value()] = order;
    const auto report = [](Rank owner) {
      return SnapshotReport{.owner = owner, .step = Step(4), .digests = {{0, 1}}, .begun = Step(5)};
    };
    for (const auto& [rank, order] : orders)
      for (Rank owner : order.of) Say(rank, report(owner)), keeper[owner.value()] = rank;
    for (const auto& [rank, order] : orders) Say(rank, report(Rank(rank)));
    seen.clear();
  }
  std::map<int, int> keeper;  // of whose copy, who has it
};

TEST(Relayout, WhereNobodyWhoLivesHoldsALostPieceAllGoBackToTheSnapshotThatHasIt) {
  LostShard bench;
  bench.CutFor({0, 2, 3});
  bench.Exit(1);
  bench.ExpectGoesOnWith({0, 2, 3});
  const PhaseOrder repair = bench.Orders(Phase::kRepair, 0).front();
  EXPECT_TRUE(repair.relayout);
  EXPECT_TRUE(repair.from_snapshot);
  EXPECT_EQ(repair.step, Step(4));
  EXPECT_EQ(repair.holders, Places({0, 2, 3}));
  for (int rank : {0, 2, 3})
    EXPECT_EQ(CopiesBroughtBy(Rank(rank), repair.holders, repair.moves),
              bench.keeper.at(1) == rank ? std::vector({Rank(rank), Rank(1)}) : std::vector({Rank(rank)}));
  EXPECT_TRUE(bench.Orders(Phase::kRollback, 0).front().from_snapshot);
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.rung, Rung::kShrink);
  EXPECT_EQ(record.step, Step(4));
  EXPECT_NE(record.reasons.back().text.find("back to the in-memory snapshot of step 4"), std::string::npos)
      << record.reasons.back().text;
}

TEST(Relayout, AFaultInEachPhaseOfThatLeavesTheSnapshotToGoBackTo) {
  for (Phase phase : {Phase::kClean, Phase::kRebuild, Phase::kRepair, Phase::kVerify, Phase::kRollback}) {
    LostShard bench;
    const int keeper = bench.keeper.at(1), other = keeper == 0 ? 2 : 0;
    bench.CutFor({0, 2, 3});
    bench.hold = phase;
    bench.Exit(1);
    ASSERT_EQ(bench.core.phase(), phase);
    bench.hold.reset();
    const int last = 5 - keeper - other;  // 0, 2 and 3 stayed
    const bool copy_lives = bench.keeper.at(other) != 1;
    keeper < last ? bench.CutFor({keeper, last}) : bench.CutFor({last, keeper});
    for (int rank : {0, 2, 3}) bench.standing[static_cast<size_t>(rank)].step = Step(phase == Phase::kRollback ? 4 : 6);
    bench.Exit(other);
    if (!copy_lives) {
      EXPECT_TRUE(bench.Ended().has_value()) << PhaseName(phase);
      continue;
    }
    EXPECT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
    EXPECT_EQ(bench.core.crew().size(), 2u);
    EXPECT_EQ(bench.Orders(Phase::kRepair, keeper).back().step, Step(4));
    EXPECT_TRUE(bench.Orders(Phase::kRepair, keeper).back().from_snapshot);
  }
}

TEST(Relayout, APieceThatNobodyKeepsIsNamedWithTheRemedy) {
  const auto refusal = [](const Cut& bench) {
    const IncidentRecord record = bench.All<IncidentClosed>().back().record;
    for (const RungReason& reason : record.reasons)
      if (reason.rung == Rung::kShrink) return reason.text;
    return std::string();
  };
  LostShard none(0);
  none.Exit(1);
  ASSERT_TRUE(none.Ended().has_value());
  EXPECT_EQ(refusal(none).find("no rank that lives holds layout 0 of rank 1"), 0u) << refusal(none);
  EXPECT_NE(refusal(none).find("--snapshot-every"), std::string::npos) << refusal(none);
  LostShard both;
  both.hold = Phase::kLock;
  both.Exit(1);
  both.hold.reset();
  both.Exit(both.keeper.at(1));
  ASSERT_TRUE(both.Ended().has_value());
  EXPECT_NE(refusal(both).find("no copy of layout 0 of rank 1 is left"), std::string::npos) << refusal(both);
}

}  // namespace
}  // namespace kintsugi::core
