// Board: transitions, deadlines, what is said and asked; IncidentCase: what is recorded of an incident; Registrations.
#include "runtime/core/board.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/unit/core/ground.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

TEST(Board, MakesNoTransitionThatTheTableDoesNotHold) {
  Ground ground;
  ground.Train();
  EXPECT_THROW(ground.board.SetPhase(Phase::kStop, "too early"), CheckFailure);
  EXPECT_THROW(ground.board.SetSave(SaveState::kRenaming), CheckFailure);
  EXPECT_EQ(ground.board.phase(), Phase::kRunning);
  EXPECT_EQ(ground.board.save(), SaveState::kNone);
  EXPECT_TRUE(ground.board.silent());
}

TEST(Board, APhaseThatGoesToAStepHasOne) {
  Ground ground;
  ground.Gather();
  ground.board.SetPhase(Phase::kRebuild, "its step may not be known yet");
  EXPECT_THROW(ground.board.SetPhase(Phase::kRepair, ""), CheckFailure);
  ground.board.plan.choice.step = Step(0);
  ground.board.SetPhase(Phase::kRepair, "");
}

TEST(Board, ADeadlineEndsWithThePhaseThatSetIt) {
  Ground ground;
  ground.Train();
  ground.board.SetDeadline(ground.board.now() + 1s);
  const uint64_t before = ground.board.transitions();
  ground.board.SetPhase(Phase::kConfirm, "");
  EXPECT_EQ(ground.board.deadline(), TimePoint::Max());
  EXPECT_EQ(ground.board.transitions(), before + 1);
}

TEST(Board, TellsOfDroppedMessagesOnceWhereTheySayTheSame) {
  Ground ground;
  ground.Train();
  (void)ground.Take();
  for (const char* why : {"old", "old", "older", "old"}) ground.board.Drop(Rank(1), why);
  ground.board.Drop(Rank(2), "old");
  for (int i = 0; i < 2; ++i) ground.board.Drop(Rank(77), "outside");  // of these nothing is kept
  EXPECT_EQ(ground.board.dropped(), 7u);
  EXPECT_EQ(Ground::Of<Notice>(ground.Take()).size(), 6u);
}

TEST(Board, ConfirmOnlyListensAndLockEndsEveryWait) {
  Ground ground;
  ground.Train();
  ground.board.Ask(Rank(2), PhaseOrder{.phase = Phase::kDump});
  ground.board.SetSaveDeadline(ground.board.now() + 1s);
  ground.OpenIncident();
  ground.board.SetPhase(Phase::kConfirm, "");
  EXPECT_FALSE(ground.board.NobodyWaits()) << "a save outlives CONFIRM";
  EXPECT_NE(ground.board.save_deadline(), TimePoint::Max());
  ground.board.SetPhase(Phase::kLock, "");
  EXPECT_TRUE(ground.board.NobodyWaits());
  EXPECT_EQ(ground.board.save_deadline(), TimePoint::Max());
}

TEST(Board, AGenerationOnlyGrows) {
  Ground ground;
  ground.Train();
  ground.board.RaiseGeneration(Generation(7));
  EXPECT_THROW(ground.board.RaiseGeneration(Generation(6)), CheckFailure);
  EXPECT_EQ(ground.board.generation(), Generation(7));
}

TEST(Board, NobodySpeaksToTheDeadAndNobodyIsAskedWhoIsNotThere) {
  Ground ground;
  ground.Train();
  ground.processes.MarkDead(Rank(1));
  ground.board.SendTo(Rank(1), LockOrder{});
  EXPECT_TRUE(ground.board.silent());
  EXPECT_THROW(ground.board.Ask(Rank(1), LockOrder{}), CheckFailure);
  EXPECT_THROW(ground.board.At(Rank(4)), CheckFailure) << "outside of the world";
}

TEST(Board, AnOrderInAnIncidentNamesWhomItBeganWithAndWhoIsNew) {
  Ground ground;
  ground.Train();
  ground.GoTo(Phase::kRebuild);
  ground.board.plan.replaced = {Rank(3)};
  ground.board.plan.decision.rung = Rung::kRespawn;
  ground.board.Order({Rank(0)}, 4s, [](Rank) { return PhaseOrder{.phase = Phase::kRebuild}; });
  const auto order = Ground::Sent<PhaseOrder>(ground.Take()).at(0).second;
  EXPECT_EQ(order.fault_ranks, std::vector<Rank>{Rank(1)});
  EXPECT_EQ(order.replaced_ranks, std::vector<Rank>{Rank(3)});
  EXPECT_EQ(order.rung, Rung::kRespawn);
  EXPECT_EQ(ground.board.deadline(), ground.board.now() + 4s + ground.board.policy.AnswerSlack());
  EXPECT_EQ(ground.board.members.waiting(), 1);
  ground.board.Heard(Rank(0), Phase::kRebuild);
  EXPECT_EQ(ground.board.incident.record().rank_spans.size(), 1u);
}

// ---- IncidentCase ------------------------------------------------------------------------------------------------

IncidentRecord First(FaultKind kind = FaultKind::kCommError) {
  IncidentRecord first;
  first.signal = kind;
  first.cause = "an echo";
  first.ranks = {Rank(0)};
  first.fault_at = TimePoint(10s);
  return first;
}

TEST(IncidentCase, TheProofTakesThePlaceOfTheEcho) {
  IncidentCase incident;
  incident.Open(First());
  incident.Blame(Rank(3), FaultKind::kProcessExit, "killed", TimePoint(9s));
  EXPECT_EQ(incident.record().signal, FaultKind::kProcessExit);
  EXPECT_EQ(incident.record().ranks, std::vector<Rank>{Rank(3)});
  EXPECT_EQ(incident.record().fault_at, TimePoint(9s)) << "the earliest instant known";
  incident.Blame(Rank(1), FaultKind::kHang, "it hangs", TimePoint(11s));
  incident.Blame(Rank(3), FaultKind::kHang, "again", TimePoint(11s));
  EXPECT_EQ(incident.record().signal, FaultKind::kProcessExit) << "what was proven first stays the cause";
  EXPECT_EQ(incident.record().ranks, (std::vector<Rank>{Rank(3), Rank(1)}));
  EXPECT_EQ(incident.record().fault_at, TimePoint(9s));
}

TEST(IncidentCase, EvidenceIsNeverTakenBackOnceItProves) {
  using enum Evidence;
  const std::set<std::pair<Evidence, Evidence>> allowed = {
      {kSuspected, kLost}, {kLost, kSuspected}, {kSuspected, kProven}, {kLost, kProven}, {kProven, kProven}};
  for (Evidence from : {kSuspected, kLost, kProven})
    for (Evidence to : {kSuspected, kLost, kProven})
      EXPECT_EQ(IsTransition(from, to), allowed.count({from, to}) > 0)
          << static_cast<int>(from) << " -> " << static_cast<int>(to);
  IncidentCase incident;
  EXPECT_THROW(incident.SetEvidence(kLost), CheckFailure) << "of no incident";
  incident.Open(First());
  incident.SetEvidence(kProven);
  EXPECT_THROW(incident.SetEvidence(kLost), CheckFailure);
  incident.Close();
  incident.Open(First());
  EXPECT_EQ(incident.evidence(), kSuspected);
}

TEST(IncidentCase, IsOneAtATimeWithAnIdOfItsOwn) {
  IncidentCase incident;
  EXPECT_THROW(incident.record(), CheckFailure);
  EXPECT_EQ(incident.id(), 0u);
  incident.Open(First());
  EXPECT_THROW(incident.Open(First()), CheckFailure);
  EXPECT_EQ(incident.Close().id, 1u);
  EXPECT_THROW(incident.Close(), CheckFailure);
  incident.Open(First());
  EXPECT_EQ(incident.id(), 2u);
  EXPECT_EQ(incident.count(), 2u);
}

TEST(IncidentCase, TellsTheFirstAttemptsAndTheNewestOnes) {
  IncidentCase incident;
  incident.Open(First());
  for (uint64_t a = 1; a <= 30; ++a) {
    incident.BeginAttempt("what ended number " + std::to_string(a - 1), Generation(a));
    if (a == 1) incident.Try({Rung::kRetry, {}});
  }
  const auto& earlier = incident.record().earlier;
  ASSERT_EQ(earlier.size(), 16u);
  EXPECT_EQ(earlier.front().attempt, 1);
  EXPECT_EQ(earlier.front().rung, Rung::kRetry);
  EXPECT_EQ(earlier.back().attempt, 29);
  EXPECT_EQ(earlier.back().rung, std::nullopt) << "it chose none";
  EXPECT_EQ(earlier.back().ended_by, "what ended number 29");
  EXPECT_THROW(incident.BeginAttempt("", Generation(30)), CheckFailure) << "of the same generation";
}

TEST(IncidentCase, NamesTheFirstOfAStormInOrderAndFewInLastWords) {
  IncidentCase incident;
  EXPECT_TRUE(incident.Named().empty());
  EXPECT_EQ(incident.FirstCause(), "");
  incident.Open(First());
  for (int r = 299; r >= 0; --r) incident.Blame(Rank(r), FaultKind::kSilence, "no sign of life", TimePoint(10s));
  const std::vector<Rank> named = incident.Named();
  ASSERT_EQ(named.size(), IncidentCase::kNamedMax);
  EXPECT_EQ(named.front(), Rank(44));
  EXPECT_EQ(named.back(), Rank(299));
  EXPECT_EQ(incident.FirstCause(), "rank 299, 298, 297, 296, 295, 294, 293, 292, ...: no sign of life; ");
}

// ---- Registrations -----------------------------------------------------------------------------------------------

Ready Claiming(std::vector<Rank> ranks, int replicas, int64_t length = 8) {
  Ready ready;
  ready.layouts[0] = {std::move(ranks), replicas};
  TensorSummary tensor;
  tensor.key = "weight";
  tensor.local_shape = {length};
  tensor.global_shape = {length};
  tensor.global_offset = {0};
  ready.registry.tensors.push_back(tensor);
  return ready;
}

TEST(Registrations, AReplacementThatRegistersTheSameChangesNothing) {
  Roster members(2);
  Registrations registered;
  const Ready ready = Claiming({Rank(0), Rank(1)}, 2);
  for (Member& member : members) registered.Take(member, ready);
  EXPECT_FALSE(registered.mapped());
  ASSERT_TRUE(registered.Map(members, false).ok());
  EXPECT_TRUE(registered.mapped());
  registered.Take(members[1], ready);
  EXPECT_FALSE(registered.changed());
  registered.Take(members[1], Claiming({Rank(0), Rank(1)}, 2, 9));
  EXPECT_TRUE(registered.changed());
}

TEST(Registrations, WhatDoesNotFitLeavesTheMapAsItWas) {
  Roster members(2);
  Registrations registered;
  for (Member& member : members) registered.Take(member, Claiming({Rank(0), Rank(1)}, 2));
  ASSERT_TRUE(registered.Map(members, false).ok());
  registered.Take(members[1], Claiming({Rank(0), Rank(1)}, 2, 9));
  const Status misfit = registered.Map(members, false);
  EXPECT_EQ(misfit.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(misfit.message().find("weight"), std::string::npos) << misfit.message();
  EXPECT_TRUE(registered.changed()) << "the map is still of what was registered before";
  EXPECT_EQ(registered.replicas().Holders(0, Rank(1)).size(), 2u);
}

TEST(Registrations, OthersOfTheGroupClaimForALostRankAndNobodyForALostGroup) {
  Roster members(4);
  Registrations registered;
  registered.Take(members[0], Claiming({Rank(0), Rank(1)}, 2));
  ASSERT_TRUE(registered.Map(members, true).ok());
  EXPECT_EQ(registered.replicas().Holders(0, Rank(1)), (std::vector<Rank>{Rank(0), Rank(1)}));
  EXPECT_EQ(registered.replicas().Holders(0, Rank(2)), std::vector<Rank>{Rank(2)})
      << "the only one, as far as is known";
  EXPECT_EQ(registered.replicas().Holders(0, Rank(3)), std::vector<Rank>{Rank(3)});
}

TEST(Registrations, AWarningIsNewsOnce) {
  Registrations registered;
  EXPECT_FALSE(registered.IsNews(""));
  EXPECT_TRUE(registered.IsNews("no digests"));
  EXPECT_FALSE(registered.IsNews("no digests"));
  EXPECT_TRUE(registered.IsNews("another"));
}

}  // namespace
}  // namespace kintsugi::core
