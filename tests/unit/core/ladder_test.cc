#include "runtime/core/ladder.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

ReplicaMap Pairs() {  // four ranks; 0 and 2 hold one shard, 1 and 3 the other
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (int r = 0; r < 4; ++r) claims[Rank(r)][0] = {{Rank(0), Rank(1), Rank(2), Rank(3)}, 2};
  return ReplicaMap::Build(4, claims).value();
}

IncidentFacts AllGood() {
  IncidentFacts incident;
  for (int r = 0; r < 4; ++r) {
    RankFacts rank;
    rank.rank = Rank(r);
    rank.respawns_left = 1;
    incident.ranks.push_back(rank);
  }
  incident.step = {Step(7), StepReason::kUpdateBegun};
  return incident;
}

IncidentFacts With(std::map<int, Condition> conditions) {
  IncidentFacts incident = AllGood();
  for (const auto& [rank, condition] : conditions) {
    incident.ranks[static_cast<size_t>(rank)].condition = condition;
    if (condition == Condition::kDamaged) incident.ranks[static_cast<size_t>(rank)].damaged = {{0, {"w"}}};
  }
  return incident;
}

Refusal ReasonOf(const RungDecision& decision, Rung rung) {
  for (const RungReason& reason : decision.reasons)
    if (reason.rung == rung) return reason.reason;
  ADD_FAILURE() << "no reason for " << RungName(rung);
  return Refusal::kChosen;
}

void ExpectRung(const IncidentFacts& incident, Rung rung) {
  const RungDecision decision = DecideRung(incident, Pairs());
  EXPECT_EQ(decision.rung, rung) << RungName(decision.rung);
  // Every cheaper rung says why not, the chosen one comes last.
  ASSERT_EQ(decision.reasons.size(), static_cast<size_t>(rung) + 1);
  for (size_t i = 0; i < decision.reasons.size(); ++i) {
    EXPECT_EQ(decision.reasons[i].rung, static_cast<Rung>(i));
    EXPECT_EQ(decision.reasons[i].reason == Refusal::kChosen, i + 1 == decision.reasons.size());
    EXPECT_FALSE(decision.reasons[i].text.empty());
  }
}

TEST(Ladder, ResumesWhatProvedToBeNothing) {
  IncidentFacts incident = AllGood();
  incident.confirmed = false;
  ExpectRung(incident, Rung::kResume);
}

TEST(Ladder, RetriesWhereNoStateIsLost) {
  ExpectRung(AllGood(), Rung::kRetry);
  EXPECT_EQ(ReasonOf(DecideRung(AllGood(), Pairs()), Rung::kResume), Refusal::kConfirmedFault);
}

TEST(Ladder, PatchesDamagedTensors) {
  const IncidentFacts incident = With({{1, Condition::kDamaged}});
  ExpectRung(incident, Rung::kPatch);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kRetry), Refusal::kStateLost);
}

TEST(Ladder, RebuildsATornRank) {
  const IncidentFacts incident = With({{1, Condition::kTorn}, {2, Condition::kDamaged}});
  ExpectRung(incident, Rung::kRebuild);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kPatch), Refusal::kWholeRankTorn);
}

TEST(Ladder, RespawnsAGoneProcess) {
  const IncidentFacts incident = With({{1, Condition::kGone}, {2, Condition::kTorn}});
  ExpectRung(incident, Rung::kRespawn);
  const RungDecision decision = DecideRung(incident, Pairs());
  EXPECT_EQ(ReasonOf(decision, Rung::kPatch), Refusal::kProcessGone);
  EXPECT_EQ(ReasonOf(decision, Rung::kRebuild), Refusal::kProcessGone);
  EXPECT_EQ(ReasonOf(decision, Rung::kAdopt), Refusal::kNotHeld);
}

TEST(Ladder, TakesSparesWhereOneWaitsForEveryGoneProcess) {
  IncidentFacts incident = With({{1, Condition::kGone}, {2, Condition::kGone}});
  incident.ranks[1].replacement_started = incident.ranks[2].replacement_started = true;
  incident.ranks[1].spare_takes_over = true;
  ExpectRung(incident, Rung::kRespawn);
  const RungDecision decision = DecideRung(incident, Pairs());
  EXPECT_EQ(ReasonOf(decision, Rung::kSpare), Refusal::kNoSpare);
  EXPECT_NE(decision.reasons[static_cast<size_t>(Rung::kSpare)].text.find("rank 2"), std::string::npos);
  incident.ranks[2].spare_takes_over = true;
  ExpectRung(incident, Rung::kSpare);
  incident.ranks[3].condition = Condition::kTorn;  // nobody is left who holds it
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kSpare), Refusal::kNoSource);
}

TEST(Ladder, CountsAReplacementThatIsOnItsWay) {
  IncidentFacts incident = With({{1, Condition::kGone}});
  incident.ranks[1].respawns_left = 0;
  incident.ranks[1].replacement_started = true;
  ExpectRung(incident, Rung::kRespawn);
}

TEST(Ladder, DumpsWhenNoRespawnIsLeft) {
  IncidentFacts incident = With({{1, Condition::kGone}});
  incident.ranks[1].respawns_left = 0;
  incident.save_possible = true;
  ExpectRung(incident, Rung::kDump);
  const RungDecision decision = DecideRung(incident, Pairs());
  EXPECT_EQ(ReasonOf(decision, Rung::kRespawn), Refusal::kNoRespawnLeft);
  EXPECT_EQ(ReasonOf(decision, Rung::kShrink), Refusal::kNotOffered);
  EXPECT_EQ(ReasonOf(decision, Rung::kReload), Refusal::kRepairPossible);
}

TEST(Ladder, ReloadsAShardThatNobodyHolds) {
  IncidentFacts incident = With({{1, Condition::kGone}, {3, Condition::kTorn}});
  incident.step = {std::nullopt, StepReason::kNoCommonStep};
  incident.checkpoint_exists = true;
  ExpectRung(incident, Rung::kReload);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kRespawn), Refusal::kNoSource);
}

TEST(Ladder, GoesBackWhereTheRanksLeaveOutWhatIsPartOfTheState) {
  IncidentFacts incident = AllGood();
  incident.back_from = Step(5);
  incident.goes_back = true;
  incident.snapshot = Step(4);
  ExpectRung(incident, Rung::kReload);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kRetry), Refusal::kGoesBack);
}

TEST(Ladder, GoesOnWhereThereIsNothingToGoBackToAndSaysSo) {
  IncidentFacts incident = AllGood();
  incident.back_from = Step(5);
  ExpectRung(incident, Rung::kRetry);
  EXPECT_NE(DecideRung(incident, Pairs()).reasons.back().text.find("cannot go back to before step 5"),
            std::string::npos);
}

TEST(Ladder, DoesNotEndARunThatCannotGoBack) {
  IncidentFacts incident = With({{1, Condition::kGone}});
  incident.back_from = Step(5);
  incident.goes_back = true;
  incident.snapshot = Step(4);
  ExpectRung(incident, Rung::kReload);
  incident.ranks[1].respawns_left = 0;
  incident.smaller.crew = Crew::Of(4, {Rank(0), Rank(2), Rank(3)}).value();
  incident.smaller.why = "the others hold every shard";
  ExpectRung(incident, Rung::kShrink);
}

TEST(Ladder, ReloadsWithoutACommonStep) {
  IncidentFacts incident = AllGood();
  incident.step = {std::nullopt, StepReason::kNoCommonStep};
  incident.checkpoint_exists = true;
  ExpectRung(incident, Rung::kReload);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kRetry), Refusal::kShardLost);
}

TEST(Ladder, ExitsWhenAShardIsLostAndNothingWasSaved) {
  IncidentFacts incident = With({{1, Condition::kGone}, {3, Condition::kGone}});
  incident.save_possible = true;
  ExpectRung(incident, Rung::kExit);
  const RungDecision decision = DecideRung(incident, Pairs());
  EXPECT_EQ(ReasonOf(decision, Rung::kReload), Refusal::kNoCheckpoint);
  EXPECT_EQ(ReasonOf(decision, Rung::kDump), Refusal::kShardLost);
}

TEST(Ladder, DumpsOnlyWhereItMaySave) {
  IncidentFacts incident = With({{1, Condition::kGone}});
  incident.ranks[1].respawns_left = 0;
  ExpectRung(incident, Rung::kExit);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kDump), Refusal::kNoSaveDirectory);
}

TEST(Ladder, NeitherReloadsNorDumpsWithoutItsPreconditions) {
  IncidentFacts incident = With({{1, Condition::kGone}, {3, Condition::kGone}});
  incident.checkpoint_exists = true;
  incident.save_possible = true;
  incident.ranks[3].respawns_left = 0;
  ExpectRung(incident, Rung::kExit);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kReload), Refusal::kNoRespawnLeft);
}

TEST(Ladder, LeavesWithADumpWhereThatIsPossible) {
  IncidentFacts incident = With({{1, Condition::kTorn}});
  incident.leaving = "a stop was asked for";
  incident.save_possible = true;
  ExpectRung(incident, Rung::kDump);
  EXPECT_EQ(ReasonOf(DecideRung(incident, Pairs()), Rung::kRebuild), Refusal::kLeaving);
  incident.ranks[3].condition = Condition::kTorn;
  ExpectRung(incident, Rung::kExit);
}

TEST(PlanMoves, MovesWhatIsLostAndNothingElse) {
  const auto moves = PlanMoves(With({{1, Condition::kGone}, {2, Condition::kDamaged}}), Pairs());
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].destination, Rank(1));
  EXPECT_EQ(moves[0].sources, std::vector<Rank>{Rank(3)});
  EXPECT_TRUE(moves[0].keys.empty());
  EXPECT_EQ(moves[1].destination, Rank(2));
  EXPECT_EQ(moves[1].sources, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(moves[1].keys, std::vector<std::string>{"w"});
  EXPECT_TRUE(PlanMoves(AllGood(), Pairs()).empty());
}

TEST(PlanMoves, NamesAllIntactHoldersAsSources) {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (int r = 0; r < 4; ++r) claims[Rank(r)][0] = {{Rank(0), Rank(1), Rank(2), Rank(3)}, 4};
  const ReplicaMap all = ReplicaMap::Build(4, claims).value();
  const auto moves = PlanMoves(With({{1, Condition::kGone}, {2, Condition::kTorn}}), all);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].sources, (std::vector<Rank>{Rank(0), Rank(3)}));
}

TEST(PlanSave, WritesEveryShardAndEveryObjectOnce) {
  IncidentFacts incident = With({{0, Condition::kGone}, {3, Condition::kTorn}});
  const auto plan = PlanSave(incident, Pairs());
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].writer, Rank(2));
  EXPECT_EQ(plan[0].entry.holders, (std::vector<Rank>{Rank(0), Rank(2)}));
  EXPECT_EQ(plan[0].entry.objects_of, (std::vector<Rank>{Rank(0), Rank(2)}));
  EXPECT_EQ(plan[1].writer, Rank(1));
}

TEST(PlanSave, PrefersWritersThatHaveNotFailed) {
  IncidentFacts incident = AllGood();
  incident.ranks[0].can_write = false;
  incident.ranks[1].can_write = incident.ranks[3].can_write = false;
  const auto plan = PlanSave(incident, Pairs());
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].writer, Rank(2));
  EXPECT_EQ(plan[1].writer, Rank(1)) << "better one that failed than none";
}

TEST(PlanSave, RefusesAShardThatNobodyHolds) {
  EXPECT_THROW((void)PlanSave(With({{0, Condition::kGone}, {2, Condition::kGone}}), Pairs()), CheckFailure);
}

TEST(Moves, APatchOfTwoLayoutsTouchesTheDamagedTensorsOfEach) {
  std::map<Rank, std::map<int, GroupClaim>> claims;
  for (int r = 0; r < 4; ++r)
    for (int layout : {0, 1, 2}) claims[Rank(r)][layout] = {{Rank(0), Rank(1), Rank(2), Rank(3)}, 2};
  const ReplicaMap replicas = ReplicaMap::Build(4, claims).value();
  IncidentFacts incident = AllGood();
  incident.ranks[1].condition = Condition::kDamaged;
  incident.ranks[1].damaged = {{0, {"a", "b"}}, {2, {"c"}}};
  EXPECT_EQ(DecideRung(incident, replicas).rung, Rung::kPatch);
  const auto moves = PlanMoves(incident, replicas);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].layout, 0);
  EXPECT_EQ(moves[0].keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(moves[1].layout, 2);
  EXPECT_EQ(moves[1].keys, std::vector<std::string>{"c"});
}

}  // namespace
}  // namespace kintsugi::core
