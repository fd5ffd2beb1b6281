// Faults of a living process: what leaves the loop, and what it is taken for.
#include <gtest/gtest.h>

#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

struct Case {
  const char* name;
  Point point;
  Fault fault;
  Rung rung;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class LivingFault : public testing::TestWithParam<Case> {};

TEST_P(LivingFault, IsRepairedByItsRungAndChangesNoBit) {
  World world;
  world.script().Do(1, 3, GetParam().point, GetParam().fault);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  const core::IncidentRecord incident = OnlyIncident(world);
  ASSERT_TRUE(incident.rung.has_value());
  EXPECT_EQ(core::RungName(*incident.rung), core::RungName(GetParam().rung));
  EXPECT_EQ(incident.ranks, std::vector<Rank>{Rank(1)});
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LivingFault,
    testing::Values(Case{"ThrownBeforeTheStep", Point::kForward, Fault::kThrow, Rung::kRetry},
                    Case{"ThrownHalfAStepAhead", Point::kBackward, Fault::kThrow, Rung::kRetry},
                    Case{"ThrownBeforeTheUpdate", Point::kBeforeUpdate, Fault::kThrow, Rung::kRetry},
                    Case{"ThrownInTheUpdate", Point::kUpdate, Fault::kThrow, Rung::kRebuild},
                    Case{"ThrownAfterTheUpdate", Point::kCommitted, Fault::kThrow, Rung::kRetry},
                    Case{"ThrownNumber", Point::kForward, Fault::kThrowNumber, Rung::kRetry},
                    Case{"ReturnedOutsideTheUpdate", Point::kForward, Fault::kOwnError, Rung::kRetry},
                    Case{"ReturnedInTheUpdate", Point::kUpdate, Fault::kOwnError, Rung::kRebuild},
                    Case{"NamedTensorsDamaged", Point::kBackward, Fault::kMemoryLow, Rung::kPatch},
                    Case{"NamedTensorsDamagedInTheUpdate", Point::kUpdate, Fault::kMemoryLow, Rung::kRebuild},
                    Case{"AllMemoryDamaged", Point::kBackward, Fault::kMemoryHigh, Rung::kRebuild},
                    Case{"AllMemoryDamagedInTheUpdate", Point::kUpdate, Fault::kMemoryHigh, Rung::kRebuild}),
    [](const auto& test) { return test.param.name; });

TEST(LivingFault, TwoInOneRunAreTwoIncidents) {
  World world;
  world.script().Do(0, 2, Point::kUpdate, Fault::kThrow);
  world.script().Do(3, 5, Point::kBackward, Fault::kMemoryLow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(world.incidents().size(), 2u);
}

TEST(LivingFault, BothReplicasOfDifferentShardsAtOnceAreOneRepair) {
  World world;
  world.script().Do(0, 3, Point::kUpdate, Fault::kThrow);
  world.script().Do(1, 3, Point::kUpdate, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
}

TEST(LivingFault, BothReplicasOfOneShardCannotBeRepairedAndTheRunSaysSo) {
  World world;
  world.script().Do(0, 3, Point::kUpdate, Fault::kThrow);
  world.script().Do(2, 3, Point::kUpdate, Fault::kThrow);
  world.RunAll();
  EXPECT_EQ(world.ended()->exit_code, 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world.result(rank).code(), StatusCode::kEnded) << world.result(rank).ToString();
    EXPECT_EQ(world.trainer(rank).exit_code(), 1);
  }
}

TEST(CommError, NeverBreaksItsReporter) {
  World world;
  world.script().Do(2, 4, Point::kForward, Fault::kCommError);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  const core::IncidentRecord incident = OnlyIncident(world);
  EXPECT_EQ(incident.rung, Rung::kRetry);
  EXPECT_EQ(incident.signal, core::FaultKind::kCommError);
  EXPECT_EQ(incident.bytes_moved, 0u);
}

TEST(CommError, AnAbortWithoutAnIncidentIsOne) {
  World world;  // somebody aborts the collectives behind the agent's back; the ranks then wait for nobody's verdict
  world.script().Do(2, 4, Point::kForward, Fault::kAbort);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRetry);
}

TEST(CommError, AnAbortThatHitsRanksInTheGateIsOne) {
  World world;
  for (int rank = 1; rank < 4; ++rank) world.script().Hold(rank, 4, Point::kInGate);
  world.script().Do(0, 4, Point::kUpdate, Fault::kAbort);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
}

TEST(LoopResult, InterruptedWithNoIncidentInSightIsARetry) {
  World world;
  world.script().Do(1, 2, Point::kForward, Fault::kInterrupted);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRetry);
}

class Classification : public testing::TestWithParam<std::pair<FaultClass, core::FaultKind>> {};

TEST_P(Classification, TheFirstPatternThatMatchesDecides) {
  WorldOptions options;
  Tweaks tweaks;
  tweaks.after_registration = [&](ToyTrainer& trainer) {
    Agent& agent = trainer.agent();
    EXPECT_FALSE(agent.RegisterFault("", GetParam().first).ok());
    KINTSUGI_RETURN_IF_ERROR(agent.RegisterFault("ERROR_ABC", FaultClass::kMemoryError));
    KINTSUGI_RETURN_IF_ERROR(agent.RegisterFault("ERROR_XYZ", GetParam().first));
    return agent.RegisterFault("library", FaultClass::kMemoryError);
  };
  options.tweaks[-1] = tweaks;
  World world(options);
  world.script().Do(3, 3, Point::kForward, Fault::kOwnError);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).signal, GetParam().second);
  EXPECT_EQ(OnlyIncident(world).rung, GetParam().first == FaultClass::kMemoryError ? Rung::kRebuild : Rung::kRetry);
}

INSTANTIATE_TEST_SUITE_P(
    Classes, Classification,
    testing::Values(std::pair{FaultClass::kException, core::FaultKind::kException},
                    std::pair{FaultClass::kCommError, core::FaultKind::kCommError},
                    std::pair{FaultClass::kMemoryError, core::FaultKind::kMemoryHigh}));

TEST(FinishedRank, KeepsItsStateUntilAllHaveFinished) {
  World world;
  // Rank 0 has finished; its replica, rank 2, is torn in the last update and is repaired from it.
  world.script().Hold(2, 6, Point::kUpdate);
  world.script().Do(2, 6, Point::kUpdate, Fault::kThrow);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(0, 6, Point::kCommitted));
  const auto finished = [&] {
    return world.OnController([&] { return world.controller().core().members()[0].finished.has_value(); });
  };
  while (!finished()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  world.script().Release(2, 6, Point::kUpdate);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRebuild);
  EXPECT_EQ(OnlyIncident(world).sources, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(OnlyIncident(world).step, Step(6));
}

}  // namespace
}  // namespace kintsugi::inproc
