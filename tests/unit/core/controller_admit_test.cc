// ControllerCore: who is let in, and what a new process starts from.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

// As a rank of a run without a launcher does: its process names no incarnation.
void JoinUnnamed(Bench& bench, int rank) {
  bench.Feed(FromAgent{{{}, {}, Rank(rank), Incarnation()}, JoinRequest{}});
  Ready ready;
  ready.layouts = bench.claims[rank];
  bench.Say(rank, ready);
}

// Two ranks in RUNNING that no launcher started.
Bench RunningAlone() {
  Policy policy = Bench::QuickPolicy(2);
  policy.can_spawn = false;
  Bench bench(policy);
  bench.Run();
  for (int r = 0; r < 2; ++r) JoinUnnamed(bench, r);
  return bench;
}

// As a process leaves by itself.
void Leave(Bench& bench, int rank, int code) {
  bench.Feed(ProcessExited{.rank = Rank(rank),
                           .incarnation = bench.member(rank).incarnation,
                           .cause = "exited with code " + std::to_string(code),
                           .left = true,
                           .code = code});
}

TEST(ControllerAdmit, AProgramThatFailsBeforeTheRunBeganIsNotTriedAgain) {
  for (const bool ready : {false, true}) {
    Bench bench(Bench::QuickPolicy(2));
    bench.mute = {0, 1};
    bench.Run();
    if (ready) bench.JoinAndReady(1);
    Leave(bench, 1, 4);
    ASSERT_TRUE(bench.Ended());
    EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
    EXPECT_EQ(bench.Ended()->text,
              std::string("before ") + (ready ? "the run began" : "it was ready") + ", rank 1 exited with code 4");
    EXPECT_EQ(bench.All<SpawnProcess>().size(), 2u);
  }
}

TEST(ControllerAdmit, OneThatLeavesContentWithoutJoiningIsToldHow) {
  Bench bench(Bench::QuickPolicy(2));
  bench.mute = {0, 1};
  bench.Run();
  Leave(bench, 1, 0);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
  EXPECT_NE(bench.Ended()->text.find("does the program call Agent::Join"), std::string::npos) << bench.Ended()->text;
}

TEST(ControllerAdmit, AReadyProcessThatIsKilledBeforeTheRunBeganIsReplaced) {
  Bench bench(Bench::QuickPolicy(2));
  bench.mute = {0};
  bench.Run();
  bench.Exit(1, "killed by SIGKILL");
  ASSERT_FALSE(bench.Ended());
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 3u);
}

TEST(ControllerAdmit, NeverStartsMoreThanItsBudget) {
  Policy policy = Bench::QuickPolicy(2);
  policy.max_respawns = 2;
  policy.save_directory.clear();
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  for (int i = 0; i < 5 && !bench.Ended(); ++i) bench.Exit(1);
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 4u);
  ASSERT_TRUE(bench.Ended());
}

TEST(ControllerAdmit, TriesAnotherReplacementWhenOneDiesWhileStarting) {
  Bench bench(Bench::QuickPolicy(4));
  bench.Run();
  bench.CommitAll(5);
  bench.replacements_come = false;
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  const Generation before = bench.core.generation();
  bench.Exit(1, "exited with code 1");
  EXPECT_EQ(bench.core.generation(), before) << "nobody else is affected";
  bench.JoinAndReady(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(ControllerAdmit, AReplacementThatDoesNotFitIsGivenUpNotTheRun) {
  Policy policy = Bench::QuickPolicy(2);
  policy.max_respawns = 1;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(5);
  bench.claims[1][0] = {{Rank(1)}, 1};
  bench.Exit(1);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << "the survivor's state is saved";
}

TEST(ControllerAdmit, WithoutALauncherItDoesNotWaitForEverForAReplacement) {
  Bench bench = RunningAlone();
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.CommitAll(5);
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.Pass(15s);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  EXPECT_TRUE(bench.Killed().empty()) << "there is nothing to kill";
}

TEST(ControllerAdmit, WithoutALauncherASecondProcessReplacesTheFirst) {
  Bench bench = RunningAlone();
  bench.CommitAll(5);
  bench.standing[1] = {GateState::kCommitted, {}, false};
  JoinUnnamed(bench, 1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.member(1).incarnation, Incarnation(2));
  EXPECT_EQ(bench.All<IncidentClosed>().at(0).record.rung, Rung::kRespawn);
}

TEST(ControllerAdmit, AnswersAProcessWhoseJoinEndsTheRun) {
  Policy policy = Bench::QuickPolicy(2);
  policy.can_spawn = false;
  policy.save_directory.clear();
  Bench bench(policy);
  bench.Run();
  for (int r = 0; r < 2; ++r) JoinUnnamed(bench, r);
  bench.CommitAll(5);
  bench.Exit(1);
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  // That the other copy is lost too becomes known by the process that comes in its place.
  const size_t answers = bench.Sent<JoinReply>().size();
  bench.Feed(FromAgent{{{}, {}, Rank(0), Incarnation()}, JoinRequest{}});
  ASSERT_TRUE(bench.Ended());
  ASSERT_EQ(bench.Sent<JoinReply>().size(), answers + 1) << "it would wait for an answer until its time is out";
  EXPECT_FALSE(bench.Sent<JoinReply>().back().second.accepted);
}

TEST(ControllerAdmit, RefusesProcessesItGaveUp) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(5);
  bench.Exit(1);
  const uint64_t before = bench.core.dropped_messages();
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(1), Incarnation(1)}, JoinRequest{}});
  EXPECT_FALSE(bench.Sent<JoinReply>().back().second.accepted);
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(1), Incarnation(1)}, FaultReport{}});
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(7), Incarnation(1)}, FaultReport{}});
  bench.Feed(FromAgent{{Term{9, 9}, bench.core.generation(), Rank(1), Incarnation(2)}, FaultReport{}});
  EXPECT_EQ(bench.core.dropped_messages(), before + 4);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(ControllerAdmit, StartsAgainWhatDiedBeforeTheRunBegan) {
  Bench bench(Bench::QuickPolicy(2));
  bench.hold = Phase::kRebuild;
  bench.Run();
  ASSERT_EQ(bench.core.phase(), Phase::kRebuild);
  bench.hold.reset();
  bench.Exit(0);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.Orders(Phase::kRepair, 0).empty()) << "it starts from the registered state like everybody";
  EXPECT_EQ(bench.Orders(Phase::kClean, 1).size(), 1u) << "its contexts of the first attempt are destroyed";
}

TEST(ControllerAdmit, WhoComesInItsPlaceBeforeTheRunBeganIsNotTakenForDamaged) {
  Bench bench(Bench::QuickPolicy(2));
  bench.hold = Phase::kRebuild;
  bench.Run();
  bench.hold = Phase::kStop;
  bench.Exit(0);  // its replacement is ready before the others have stopped
  ASSERT_EQ(bench.core.phase(), Phase::kStop);
  ASSERT_EQ(bench.member(0).life, ControllerCore::Life::kReady);
  bench.hold.reset();
  bench.Say(1, Parked{GateState::kCommitted, Step(0), true});
  EXPECT_EQ(bench.Killed(), std::set<int>{});
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 3u);
}

TEST(ControllerAdmit, SaysWhoseRegistrationDoesNotFit) {
  Bench bench(Bench::QuickPolicy(2));
  bench.claims[1][0].replicas = 1;
  bench.Run();
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
}

TEST(ControllerAdmit, AReloadKeepsToTheCheckpointItChose) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(4);
  bench.Say(0, Published{Step(4), "saves/4"});
  bench.hold = Phase::kClean;
  bench.standing = {{GateState::kTorn, Step(9), false}, {GateState::kTorn, Step(9), false}};
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .in_update = true});
  bench.SayLate(1, Published{Step(8), "saves/8"});  // it became visible while all were stopping
  bench.hold = Phase::kRepair;
  for (int r = 0; r < 2; ++r) bench.Say(r, PhaseDone{.phase = Phase::kClean});
  ASSERT_EQ(bench.Orders(Phase::kRepair, 0).size(), 1u);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0)[0].step, Step(4));
  EXPECT_EQ(bench.Orders(Phase::kRepair, 0)[0].directory, "saves/4");
}

TEST(ControllerAdmit, WithoutALauncherARankGivenUpDoesNotComeBackUnderItsOldNumber) {
  Bench bench = RunningAlone();
  bench.CommitAll(5);
  bench.silent = {1};
  bench.replacements_come = false;
  bench.Pass(bench.core.policy().silence + 100ms);
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  const Incarnation given_up = bench.member(1).incarnation;
  bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(1), given_up}, JoinRequest{}});
  EXPECT_FALSE(bench.Sent<JoinReply>().back().second.accepted) << "frozen and thawed: its state is behind";
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.silent.clear();
  JoinUnnamed(bench, 1);
  EXPECT_TRUE(bench.Sent<JoinReply>().back().second.accepted);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST(ControllerAdmit, OneProcessIsARankAtATime) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  const auto join = [&](uint64_t pid) {
    JoinRequest request;
    request.pid = pid;
    bench.Feed(FromAgent{{bench.core.term(), bench.core.generation(), Rank(1), Incarnation(1)}, request});
    return bench.Sent<JoinReply>().back().second;
  };
  const uint64_t pid = bench.member(1).pid;
  const JoinReply second = join(pid + 1);
  EXPECT_FALSE(second.accepted);
  EXPECT_NE(second.text.find("process " + std::to_string(pid + 1)), std::string::npos) << second.text;
  EXPECT_EQ(bench.member(1).pid, pid);
  EXPECT_TRUE(join(pid).accepted) << "a connection that came back before the old one was found broken";
}

// Two ranks lose a shard at step 9 and are to reload; returns in REPAIR, all waiting for.
void LoseAShard(Bench& bench) {
  bench.hold = Phase::kRepair;
  bench.standing = {{GateState::kTorn, Step(9), false}, {GateState::kTorn, Step(9), false}};
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .in_update = true});
}

TEST(ControllerAdmit, AReloadTriesTheCheckpointBeforeADamagedOne) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(8);
  bench.Say(0, Published{Step(4), "saves"});
  bench.Say(0, Published{Step(8), "saves"});
  LoseAShard(bench);
  ASSERT_EQ(bench.Orders(Phase::kRepair, 1).at(0).step, Step(8));
  bench.hold.reset();
  bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kDataLoss, .text = "block 3 of 'w' is damaged"});
  ASSERT_EQ(bench.Orders(Phase::kRepair, 1).size(), 2u);
  EXPECT_EQ(bench.Orders(Phase::kRepair, 1)[1].step, Step(4));
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.Killed().empty()) << "the checkpoint failed, not the rank that read it";
}

TEST(ControllerAdmit, WithoutAnotherCheckpointADamagedOneIsNamed) {
  Bench bench(Bench::QuickPolicy(2));
  bench.Run();
  bench.CommitAll(4);
  bench.Say(0, Published{Step(4), "saves"});
  LoseAShard(bench);
  bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kDataLoss, .text = "block 3 of 'w' is damaged"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
  EXPECT_NE(bench.Ended()->text.find("the checkpoint of step 4 in saves"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("block 3 of 'w'"), std::string::npos) << bench.Ended()->text;
}

TEST(ControllerAdmit, AResumeFromADamagedCheckpointEndsAtOnce) {
  Policy policy = Bench::QuickPolicy(2);
  policy.resume_directory = "saves";
  policy.resume_step = Step(4);
  Bench bench(policy);
  bench.hold = Phase::kRepair;
  bench.Run();
  bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kDataLoss, .text = "block 3 of 'w' is damaged"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup);
  EXPECT_NE(bench.Ended()->text.find("block 3 of 'w'"), std::string::npos) << bench.Ended()->text;
}

// Trying again would find the same: a start that cannot work ends, and says why.
TEST(ControllerAdmit, AResumeThatDoesNotFitEndsAtOnceAndBlamesNobody) {
  for (StatusCode code :
       {StatusCode::kFailedPrecondition, StatusCode::kInvalidArgument, StatusCode::kPermissionDenied}) {
    Policy policy = Bench::QuickPolicy(2);
    policy.resume_directory = "saves";
    policy.resume_step = Step(4);
    Bench bench(policy);
    bench.hold = Phase::kRepair;
    bench.Run();
    bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = code, .text = "tensor 'w' has another shape"});
    ASSERT_TRUE(bench.Ended());
    EXPECT_EQ(bench.Ended()->exit_code, code == StatusCode::kInvalidArgument ? kExitUsage : kExitStartup);
    EXPECT_NE(bench.Ended()->text.find("tensor 'w'"), std::string::npos) << bench.Ended()->text;
    EXPECT_EQ(bench.All<SpawnProcess>().size(), 2u) << "no process is started a second time";
    EXPECT_TRUE(bench.Killed().empty());
  }
}

TEST(ControllerAdmit, AHandlerThatRefusesItsConfigurationEndsTheStartAtOnce) {
  Bench bench(Bench::QuickPolicy(2));
  bench.hold = Phase::kRebuild;
  bench.Run();
  bench.Say(1, PhaseDone{.phase = Phase::kRebuild, .code = StatusCode::kInvalidArgument, .text = "no interface eth7"});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitUsage);
  EXPECT_NE(bench.Ended()->text.find("rank 1"), std::string::npos) << bench.Ended()->text;
  EXPECT_NE(bench.Ended()->text.find("no interface eth7"), std::string::npos) << bench.Ended()->text;
}

TEST(ControllerAdmit, AStartThatFailsAgainAndAgainIsNoRunToComeBackTo) {
  Policy policy = Bench::QuickPolicy(2);
  policy.resume_directory = "saves";
  policy.resume_step = Step(4);
  Bench bench(policy);
  bench.hold = Phase::kRepair;
  bench.Run();
  for (int tries = 0; tries < 400 && !bench.Ended(); ++tries) {
    bench.Say(1, PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kInternal, .text = "broken"});
    bench.Pass(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitStartup) << bench.Ended()->text;
}

TEST(ControllerAdmit, ANodeThatStaysAwayIsNotToldAsADeath) {
  Policy policy = Bench::QuickPolicy(2);
  policy.max_respawns = 1;
  Bench bench(policy);
  bench.Run();
  bench.CommitAll(4);
  bench.replacements_come = false;
  bench.Exit(1);
  const Incarnation second = bench.All<SpawnProcess>().back().incarnation;
  bench.Feed(ProcessExited{Rank(1), second, "node 1 did not come back within 60 s", std::nullopt, true});
  bench.Pass(std::chrono::milliseconds(100));
  std::string told;
  for (const Transition& transition : bench.All<Transition>()) told += transition.reason + "\n";
  for (const Notice& notice : bench.All<Notice>()) told += notice.text + "\n";
  EXPECT_NE(told.find("rank 1 has no respawn left: node 1 did not come back within 60 s"), std::string::npos) << told;
  EXPECT_EQ(told.find("the replacement of rank 1 died"), std::string::npos) << told;
}

}  // namespace
}  // namespace kintsugi::core
