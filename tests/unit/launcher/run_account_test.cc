// What is known of a run so far, and how fast it goes.
#include "runtime/launcher/run/run_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/launcher/run/progress_meter.h"
#include "runtime/launcher/run/run_history.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using core::Phase;

constexpr TimePoint kBegin = TimePoint(1000s);

core::Policy TwoRanks() {
  core::Policy policy;
  policy.world_size = 2;
  return policy;
}

core::Transition To(Phase from, Phase to, uint64_t generation) {
  core::Transition transition;
  transition.from = from;
  transition.to = to;
  transition.generation = Generation(generation);
  return transition;
}

PageView At(uint64_t step, TimePoint at) { return {1, 0, PackProgress(step, TrainPhase::kForward), at}; }

struct Account : ::testing::Test {
  RunAccount account{TwoRanks(), Generation(), kBegin};
};

TEST_F(Account, ALifeHasOneEnd) {
  account.OnStarting(Rank(1), Incarnation(1), kBegin);
  account.OnExited(Rank(1), {.cause = "killed", .at = kBegin + 3s});
  account.OnExited(Rank(1), {.cause = "told again", .at = kBegin + 9s});
  ASSERT_EQ(account.result().lives.size(), 1u);
  EXPECT_EQ(account.result().lives[0].end, kBegin + 3s);
  EXPECT_EQ(account.result().lives[0].cause, "killed");
  EXPECT_THROW(account.OnStarting(Rank(2), Incarnation(1), kBegin), CheckFailure) << "there is no rank 2";
  EXPECT_THROW(account.OnPage(Rank(-1), At(1, kBegin)), CheckFailure);
}

TEST_F(Account, ARunThatWentWellIsJudgedByHowItsProcessesLeave) {
  for (int rank : {0, 1}) account.OnStarting(Rank(rank), Incarnation(1), kBegin);
  account.End({core::kExitSuccess, "all ranks finished", Step(9), std::nullopt});
  EXPECT_TRUE(account.awaits_ends());
  EXPECT_EQ(account.Running(), (std::vector<Rank>{Rank(0), Rank(1)}));
  account.OnExited(Rank(0), {.cause = "exited with code 0", .at = kBegin + 3s, .code = 0});
  EXPECT_EQ(account.result().exit_code, core::kExitSuccess);
  account.OnExited(Rank(1), {.cause = "killed by SIGKILL", .at = kBegin + 4s});
  EXPECT_TRUE(account.Running().empty());
  account.Spoil("told later");
  account.Conclude(false);
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  EXPECT_EQ(account.result().text, "after all loops were over, rank 1 killed by SIGKILL");
  EXPECT_EQ(account.result().committed, Step(9));
}

TEST_F(Account, ARunThatFailedIsNotJudgedAgain) {
  account.OnStarting(Rank(0), Incarnation(1), kBegin);
  account.End({core::kExitResumable, "saved", Step(9), std::nullopt});
  EXPECT_FALSE(account.awaits_ends());
  account.OnExited(Rank(0), {.cause = "exited with code 75", .at = kBegin + 3s, .code = 75});
  EXPECT_EQ(account.result().exit_code, core::kExitResumable);
  EXPECT_THROW(account.Spoil("it was"), CheckFailure);
}

TEST_F(Account, AFaultThatMustStrikeAndDoesNotSpoilsTheRun) {
  for (const bool must : {false, true}) {
    RunAccount one{TwoRanks(), Generation(), kBegin};
    one.OnStarting(Rank(1), Incarnation(1), kBegin);
    one.End({core::kExitSuccess, "all ranks finished", Step(9), std::nullopt});
    one.OnExited(Rank(1), {.cause = "", .at = kBegin, .code = 0, .not_struck = {"kill:1@18:backward"}});
    one.Conclude(must);
    EXPECT_EQ(one.result().exit_code, must ? core::kExitStartup : core::kExitSuccess);
    EXPECT_EQ(one.Take(kBegin + 1s).not_struck, std::vector<std::string>{"kill:1@18:backward"});
  }
}

TEST_F(Account, AStepIsTimedFromItsBeginningToTheNextOnes) {
  account.OnStarting(Rank(0), Incarnation(1), kBegin);
  account.OnPage(Rank(0), At(1, kBegin + 1s));
  account.OnPage(Rank(0), At(1, kBegin + 1s));
  account.OnPage(Rank(0), At(2, kBegin + 4s));
  ASSERT_EQ(account.result().steps.size(), 1u);
  EXPECT_EQ(account.result().steps[0].step, Step(1));
  EXPECT_EQ(account.result().steps[0].end - account.result().steps[0].begin, 3s);
  account.OnStarting(Rank(0), Incarnation(2), kBegin + 5s);
  account.OnPage(Rank(0), At(2, kBegin + 9s));
  EXPECT_EQ(account.result().steps.size(), 1u) << "another process begins its first step";
}

TEST_F(Account, OneThatLeadsNextIsToldOfTheNewestGenerationInWhichAllWere) {
  EXPECT_FALSE(account.began());
  account.OnTransition(To(Phase::kRollback, Phase::kRunning, 3), Step(), kBegin);
  EXPECT_TRUE(account.began());
  account.OnTransition(To(Phase::kRunning, Phase::kLock, 4), Step(), kBegin);
  EXPECT_EQ(account.running(), Generation(3));
}

TEST_F(Account, OfCheckpointsTheNewestAreKept) {
  for (uint64_t step = 1; step <= 20; ++step)
    account.OnCheckpoint({Step(step), "step-" + std::to_string(step)}, kBegin);
  EXPECT_EQ(account.checkpoints().size(), 16u);
  EXPECT_EQ(account.checkpoints().front().step, Step(5));
  account.OnCheckpoint({Step(7), "step-7"}, kBegin);
  EXPECT_EQ(account.checkpoints().size(), 16u) << "made anew, it is the newest";
  EXPECT_EQ(account.checkpoints().back().step, Step(7));
  EXPECT_EQ(account.result().saves.made, 21u);
}

TEST_F(Account, WhatFiredAfterItsIncidentIsFoundBeforeIt) {
  core::IncidentRecord incident;
  incident.ranks = {Rank(1)};
  incident.fault_at = incident.detected_at = kBegin + 5s;
  incident.resumed_at = kBegin + 6s;
  EXPECT_FALSE(account.OnIncident(incident, kBegin + 6s).injected);
  Injection injection;
  injection.rank = Rank(1);
  account.OnFired({injection, kBegin + 4s});
  ASSERT_TRUE(account.result().incidents[0].injected);
  EXPECT_EQ(account.result().incidents[0].record.fault_at, kBegin + 4s);
}

TEST_F(Account, ARunStartsAndEndsOnce) {
  account.Start();
  EXPECT_THROW(account.Start(), CheckFailure);
  account.AskStop(kBegin + 1s);
  account.AskStop(kBegin + 2s);
  EXPECT_EQ(account.stop_asked(), kBegin + 1s);
  account.End({core::kExitResumable, "saved", Step(8), std::nullopt});
  EXPECT_THROW(account.End({core::kExitFailed, "again", Step(), std::nullopt}), CheckFailure);
  const RunResult result = account.Take(kBegin + 10s);
  EXPECT_EQ(result.exit_code, core::kExitResumable);
  EXPECT_EQ(result.committed, Step(8));
  EXPECT_TRUE(result.asked);
  EXPECT_EQ(result.end, kBegin + 10s);
}

core::IncidentRecord Incident(uint64_t id, TimePoint fault_at) {
  core::IncidentRecord record;
  record.id = id;
  record.signal = core::FaultKind::kException;
  record.cause = "CUDA \"error\", 7 = out of (memory]";
  record.ranks = {Rank(1)};
  record.step = Step(5);
  record.attempts = 1;
  record.term = {1, 1};
  record.rung = Rung::kRetry;
  record.reasons = {{Rung::kRetry, {}, "all live ranks hold step 5"}};
  record.fault_at = fault_at;
  record.detected_at = fault_at + 1ms;
  record.resumed_at = fault_at + 100ms;
  record.phases = {{Phase::kLock, 1, Generation(2), fault_at + 1ms, fault_at + 9ms}};
  record.rank_spans = {{Rank(1), Phase::kLock, 1, fault_at + 1ms, fault_at + 2ms}};
  return record;
}

// Each host has a clock of its own.
TEST_F(Account, TheIncidentsOfLeadersBeforeAreInTheResult) {
  account.OnIncident(Incident(1, kBegin + 3s), kBegin + 4s);
  const uint64_t news = account.incident_news();
  account.OnFired({ParseInjection("throw:1@6:backward").value(), kBegin + 3s});
  EXPECT_NE(account.incident_news(), news) << "an injection that is told late is told on";
  KeptHistory kept;
  for (const IncidentResult& over : account.result().incidents)
    kept.incidents.push_back(ToKept(over, account.result().begin));

  constexpr TimePoint kThere = TimePoint(500000s);
  core::Policy policy = TwoRanks();
  policy.takes_over = true;
  policy.incidents_before = 3;
  account.OnSave({Step(3), false, Rank(0), "no space"}, kBegin + 5s);
  account.OnInexact(Rank(0), "it has another sampler");
  wire::RunSoFar before = account.ForNext(kBegin + 9s);
  before.time = {};
  before.time.total = 10s;
  RunAccount next(policy, Generation(), kThere, before, kept);
  EXPECT_EQ(next.result().begin, kThere - 10s);
  EXPECT_EQ(next.result().incidents_before, 2u) << "those of which nobody has told";
  ASSERT_EQ(next.result().incidents.size(), 1u);
  const IncidentResult& over = next.result().incidents[0];
  const core::IncidentRecord as_told = Incident(1, kThere - 10s + 3s);
  EXPECT_EQ(over.record.fault_at, as_told.fault_at);
  EXPECT_EQ(over.record.resumed_at, as_told.resumed_at);
  EXPECT_EQ(over.record.cause, as_told.cause);
  EXPECT_EQ(over.record.phases.at(0).end, as_told.phases[0].end);
  EXPECT_EQ(over.record.reasons.at(0).text, as_told.reasons[0].text);
  EXPECT_TRUE(over.record.rank_spans.empty());
  ASSERT_TRUE(over.injected);
  EXPECT_EQ(ToString(over.injected->injection), "throw:1@6:backward");

  next.OnIncident(Incident(4, kThere + 1s), kThere + 2s);
  EXPECT_FALSE(next.result().incidents[1].injected) << "that fault was the other one's cause";
  EXPECT_EQ(next.ForNext(kThere + 2s).incidents, 4u);
  EXPECT_EQ(next.ForNext(kThere + 2s).saves_failed, 1u);
  EXPECT_EQ(next.result().inexact.count, 1u) << "what they said is in the log of their time";
  RunResult result = next.Take(kThere + 5s);
  EXPECT_EQ(result.end - result.begin, result.time.total);
  EXPECT_EQ(result.fired.size(), 1u);
}

TEST_F(Account, ProcessesAndStepsOfLeadersBeforeAreInTheResult) {
  const auto page = [](uint64_t step, TimePoint at) {
    return PageView{1, 0, PackProgress(step, TrainPhase::kForward), at};
  };
  account.OnStarting(Rank(0), Incarnation(1), kBegin + 1s);
  account.OnStarting(Rank(1), Incarnation(1), kBegin + 1s);
  account.OnPage(Rank(0), page(1, kBegin + 2s));
  account.OnPage(Rank(0), page(2, kBegin + 3s));
  EXPECT_EQ(account.steps_timed(), 1u);
  KeptHistory kept;
  for (const RankLife& life : account.result().lives) kept.lives.push_back(ToKept(life, account.result().begin));
  for (const StepTiming& step : account.result().steps) kept.steps.push_back(ToKept(step, account.result().begin));

  constexpr TimePoint kThere = TimePoint(500000s);
  core::Policy policy = TwoRanks();
  policy.takes_over = true;
  wire::RunSoFar before;
  before.time.total = 10s;
  RunAccount next(policy, Generation(), kThere, before, kept);
  next.OnStarting(Rank(0), Incarnation(1), kThere + 1s);  // it has lived all along
  next.OnStarting(Rank(1), Incarnation(2), kThere + 2s);  // the one before was on the leader's host
  next.OnPage(Rank(0), page(2, kThere + 1s));
  next.OnPage(Rank(0), page(3, kThere + 3s));
  const std::vector<RankLife>& lives = next.result().lives;
  ASSERT_EQ(lives.size(), 3u);
  EXPECT_EQ(lives[0].begin, kThere - 10s + 1s);
  EXPECT_FALSE(lives[0].end);
  EXPECT_EQ(lives[1].end, kThere + 2s);
  EXPECT_EQ(lives[2].begin, kThere + 2s);
  ASSERT_EQ(next.result().steps.size(), 2u);
  EXPECT_EQ(next.result().steps[0].begin, kThere - 10s + 2s);
  EXPECT_EQ(next.result().steps[1].step, Step(2));
  next.OnExited(Rank(0), {.cause = "exited with code 0", .at = kThere + 4s});
  EXPECT_EQ(next.result().lives[0].end, kThere + 4s);
  EXPECT_EQ(next.life_news(), 2u + 2u + 1u);
}

TEST_F(Account, TheWorldsThatARunWentThroughOutliveItsLeaders) {
  const core::Crew both(2), one = both.Without({Rank(0)});
  account.OnCrew(both, 0, Step(), kBegin + 1s);
  EXPECT_TRUE(account.result().worlds.empty()) << "all take part from the start";
  account.OnCrew(one, 3, Step(7), kBegin + 5s);
  account.OnCrew(one, 4, Step(9), kBegin + 6s);  // another incident, in the same world
  ASSERT_EQ(account.result().worlds.size(), 1u);
  EXPECT_EQ(account.result().worlds[0].left, std::vector<Rank>{Rank(0)});
  EXPECT_EQ(account.ForNext(kBegin + 6s).crew, std::vector<Rank>{Rank(1)});
  KeptHistory kept;
  for (const WorldChange& world : account.result().worlds) kept.worlds.push_back(ToKept(world, account.result().begin));

  constexpr TimePoint kThere = TimePoint(500000s);
  core::Policy policy = TwoRanks();
  policy.takes_over = true;
  for (const bool pulsed : {false, true}) {  // the leader may have been lost before it told who takes part
    wire::RunSoFar before;
    before.time.total = 10s;
    if (pulsed) before.crew = {Rank(1)};
    RunAccount next(policy, Generation(), kThere, before, kept);
    EXPECT_EQ(next.ForNext(kThere).crew, std::vector<Rank>{Rank(1)});
    next.OnCrew(one, 0, Step(), kThere + 1s);
    ASSERT_EQ(next.result().worlds.size(), 1u) << pulsed;
    next.OnCrew(both, 5, Step(20), kThere + 2s);
    ASSERT_EQ(next.result().worlds.size(), 2u);
    EXPECT_EQ(next.worlds_seen(), 2u);
    const WorldChange &first = next.result().worlds[0], &second = next.result().worlds[1];
    EXPECT_EQ(first.at, kThere - 10s + 5s);
    EXPECT_EQ(first.step, Step(7));
    EXPECT_EQ(first.incident, 3u);
    EXPECT_EQ(first.ranks, 1);
    EXPECT_EQ(second.came, std::vector<Rank>{Rank(0)});
    EXPECT_EQ(second.ranks, 2);
  }
}

TEST(RunAccount, WhereARunGoesOnFromIsACheckpoint) {
  core::Policy policy = TwoRanks();
  policy.resume_step = Step(40);
  policy.resume_directory = "saves/step-40";
  const RunAccount account(policy, Generation(), kBegin);
  ASSERT_EQ(account.checkpoints().size(), 1u);
  ASSERT_TRUE(account.result().saves.newest);
  EXPECT_EQ(account.result().saves.newest->checkpoint.step, Step(40));
  policy.takes_over = true;  // it is told by the leader before
  EXPECT_TRUE(RunAccount(policy, Generation(), kBegin).checkpoints().empty());
}

TEST(SampleRate, FollowsWhatPasses) {
  SampleRate rate;
  EXPECT_EQ(rate.See(0, 0, kBegin), 0);
  EXPECT_EQ(rate.See(1, 10, kBegin + 1s), 0) << "when the first step began nobody saw";
  EXPECT_DOUBLE_EQ(rate.See(3, 10, kBegin + 2s), 0.3 * 20);
  EXPECT_DOUBLE_EQ(rate.See(3, 10, kBegin + 9s), 6) << "nothing has passed";
  EXPECT_DOUBLE_EQ(rate.See(2, 10, kBegin + 10s), 6) << "it went back";
  EXPECT_DOUBLE_EQ(rate.See(3, 10, kBegin + 11s), 0.7 * 6 + 0.3 * 10);
}

}  // namespace
}  // namespace kintsugi
