// A controller that takes over: what it makes of what agents and launchers say.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;
using Life = ControllerCore::Life;

Policy Heir(int world_size) {
  Policy policy = Bench::QuickPolicy(world_size);
  policy.takes_over = true;
  policy.needs_consent = true;
  policy.consent_wait = 3s;
  return policy;
}

class Takeover : public testing::Test {
 protected:
  explicit Takeover(const Policy& policy = Heir(4)) : bench(policy, Term{2, 2}) { bench.Start(); }

  // A rank of the run before: its launcher names it, then it joins and says that it is ready.
  void Arrive(int rank, Standing standing = Standing::kRunning, uint64_t generation = 5, uint64_t step = 9) {
    bench.Feed(ProcessFound{Rank(rank), Incarnation(3)});
    JoinAgain(rank, standing, generation, step);
  }
  void JoinAgain(int rank, Standing standing, uint64_t generation, uint64_t step = 9) {
    bench.standing[static_cast<size_t>(rank)] = {GateState::kCommitted, kintsugi::Step(step), true};
    const Header header{Term{1, 1}, Generation(generation), Rank(rank), Incarnation(3)};
    bench.Feed(FromAgent{header, JoinRequest{.pid = 1, .host = "h", .standing = standing, .joined_before = true}});
    Ready ready;
    ready.layouts = bench.claims[rank];
    bench.Say(rank, ready);
  }
  void ArriveAll() {
    for (int rank = 0; rank < 4; ++rank) Arrive(rank);
  }

  Bench bench;
};

TEST_F(Takeover, OfAnUndisturbedRunChangesNothing) {
  ArriveAll();
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.generation(), Generation(5));
  EXPECT_EQ(bench.core.incidents(), 0u);
  EXPECT_TRUE(bench.Sent<LockOrder>().empty());
  // It decides from now on.
  bench.Exit(1);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.generation(), Generation(6));
  EXPECT_EQ(bench.core.incidents(), 1u);
}

// A node that forgot whom it obeyed may have asked the leader before this one for the next life, too.
TEST_F(Takeover, GivesLivesThatNoLeaderBeforeItGives) {
  ArriveAll();
  for (const uint64_t life : {2'000'001, 2'000'002}) {
    bench.Exit(1);
    EXPECT_EQ(bench.member(1).incarnation, Incarnation(life));
  }
}

// Shards {0, 2} and {1, 3}. Rank 0 keeps a second copy for rank 3, rank 1 for rank 0, and so on.
class TakeoverOfSnapshots : public Takeover {
 protected:
  TakeoverOfSnapshots()
      : Takeover([] {
          Policy policy = Heir(4);
          policy.snapshot_every = 4;
          return policy;
        }()) {
    for (int rank = 0; rank < 4; ++rank) bench.digests[rank][0] = 100 + static_cast<uint64_t>(rank % 2);
  }
  // It has joined, and says what it holds before it is ready.
  void TellCopies(int rank, uint64_t step) { TellCopies(rank, step, {rank, (rank + 3) % 4}); }
  void TellCopies(int rank, uint64_t step, const std::vector<int>& owners) {
    bench.Feed(ProcessFound{Rank(rank), Incarnation(3)});
    bench.standing[static_cast<size_t>(rank)] = {GateState::kCommitted, kintsugi::Step(13), true};
    const Header header{Term{1, 1}, Generation(5), Rank(rank), Incarnation(3)};
    bench.Feed(
        FromAgent{header, JoinRequest{.pid = 1, .host = "h", .standing = Standing::kRunning, .joined_before = true}});
    for (const int owner : owners) TellCopy(rank, owner, step);
  }
  void TellCopy(int rank, int owner, uint64_t step) {
    SnapshotReport report{.owner = Rank(owner), .step = kintsugi::Step(step), .counts = true};
    report.digests[0] = 100 + static_cast<uint64_t>(owner % 2);
    bench.Say(rank, report);
  }
  void SayReady(int rank) {
    Ready ready;
    ready.layouts = bench.claims[rank];
    bench.Say(rank, ready);
  }
  void Lose(int rank) { bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "had ended", std::nullopt}); }
};

TEST_F(TakeoverOfSnapshots, AGroupThatIsLostWithItComesBackFromThem) {
  for (int rank : {1, 3}) Lose(rank);
  for (int rank : {0, 2}) TellCopies(rank, 8);
  for (int rank : {0, 2}) SayReady(rank);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning) << bench.Ended().value_or(RunEnded{}).text;
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(record.rung, Rung::kReload);
  EXPECT_EQ(record.step, kintsugi::Step(8));
  const std::vector<RepairMove> moves = bench.Orders(Phase::kRepair, 1).back().moves;
  EXPECT_EQ(moves.size(), 2u);
  for (const RepairMove& move : moves)
    EXPECT_EQ(move.sources, std::vector<Rank>{Rank((move.destination.value() + 1) % 4)}) << "who keeps it";
}

TEST_F(TakeoverOfSnapshots, OfTwoTheNewestOfWhichAllIsThereCounts) {
  for (int rank : {1, 3}) Lose(rank);
  for (int rank : {0, 2}) TellCopies(rank, 8);
  TellCopy(0, 0, 12);
  for (int rank : {0, 2}) SayReady(rank);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning) << bench.Ended().value_or(RunEnded{}).text;
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.step, kintsugi::Step(8));
}

TEST_F(TakeoverOfSnapshots, SayWhatTheyLackWhereNoneIsWhole) {
  for (int rank : {1, 3}) Lose(rank);
  for (int rank : {0, 2}) {
    TellCopies(rank, 8, {rank});
    SayReady(rank);
  }
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.core.snapshots().table().newest(), kintsugi::Step())
      << "it counts no more, and nothing is compared with it";
  const std::vector<RungReason> reasons = bench.All<IncidentClosed>().back().record.reasons;
  const auto reload =
      std::find_if(reasons.begin(), reasons.end(), [](const auto& r) { return r.rung == Rung::kReload; });
  ASSERT_NE(reload, reasons.end());
  EXPECT_NE(reload->text.find("of the in-memory snapshot of step 8 no copy of layout 0 of rank 1 is left"),
            std::string::npos)
      << reload->text;
}

TEST_F(TakeoverOfSnapshots, DoNotCountWhereTheyMayBeCopiesOfDamage) {
  for (int rank : {1, 3}) Lose(rank);
  TellCopies(0, 8);
  TellCopies(2, 8);
  bench.Say(2, FaultReport{FaultKind::kMemoryHigh, "double bit error", {}, kintsugi::Step(9), false, bench.now});
  for (int rank : {0, 2}) SayReady(rank);
  ASSERT_TRUE(bench.Ended()) << "and there is no checkpoint";
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
}

TEST_F(Takeover, HearsFirstThatTheRunIsToEnd) {
  bench.Feed(ProcessFound{Rank(0), Incarnation(3)});
  JoinAgain(0, Standing::kRunning, 5);
  bench.Say(0, FaultReport{.kind = FaultKind::kRefused, .text = "no more may be left out", .step = kintsugi::Step(9)});
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed) << "a run that has trained is none that could not start";
}

TEST_F(Takeover, OrdersNothingBeforeItKnowsWhoIsThere) {
  for (int rank = 0; rank < 2; ++rank) Arrive(rank);
  bench.Feed(ProcessExited{Rank(2), Incarnation(3), "killed by SIGKILL", std::nullopt});
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  EXPECT_TRUE(bench.Sent<LockOrder>().empty());
  // Nobody waits longer than for the last one of whom something may be heard.
  Arrive(3);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<SpawnProcess>().size(), 1u);
}

// Asked to stop while it listens, it cannot know yet that there is something to save.
TEST_F(Takeover, SavesBeforeItStopsOnRequest) {
  for (int rank = 0; rank < 3; ++rank) Arrive(rank);
  bench.Feed(OperatorStop{});
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  Arrive(3);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Sent<PauseAt>().size(), 4u);
}

TEST_F(Takeover, StopsOnRequestWhereTheRunNeverBegan) {
  for (int rank = 0; rank < 3; ++rank) Arrive(rank, Standing::kHolds, 1, 0);
  bench.Feed(OperatorStop{});
  Arrive(3, Standing::kHolds, 1, 0);
  EXPECT_EQ(bench.core.phase(), Phase::kEnded);
}

TEST_F(Takeover, GoesOnWithTheIncidentItFinds) {
  Arrive(0, Standing::kLocked, 6);
  Arrive(1, Standing::kLocked, 6);
  Arrive(2, Standing::kRunning, 5);
  Arrive(3, Standing::kRunning, 5);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.core.generation(), Generation(7));
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].record.signal, FaultKind::kControllerLost);
  EXPECT_EQ(closed[0].record.step, kintsugi::Step(9));
}

TEST_F(Takeover, RepairsARankThatWasLostWithTheController) {
  for (int rank = 1; rank < 4; ++rank) Arrive(rank);
  bench.Pass(1300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const auto closed = bench.All<IncidentClosed>();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].record.rung, Rung::kRespawn);
  // The life that it starts is newer than any that the controller before can have started.
  ASSERT_EQ(bench.All<SpawnProcess>().size(), 1u);
  EXPECT_GT(bench.All<SpawnProcess>()[0].incarnation, Incarnation(1000));
}

class TakeoverByAPart : public Takeover {
 protected:
  static Policy OfAPart() {
    Policy policy = Heir(4);
    policy.part = true;
    return policy;
  }
  TakeoverByAPart() : Takeover(OfAPart()) {}
};

TEST_F(TakeoverByAPart, WaitsForNobodyWhereItFindsNoMajority) {
  bench.replacements_come = false;
  for (int rank : {2, 3}) Arrive(rank);
  bench.Pass(1300ms);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
}

TEST_F(TakeoverByAPart, WaitsLikeAnyOtherOnceTheOthersHaveCome) {
  ArriveAll();
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  bench.replacements_come = false;
  bench.silent = bench.mute = {0, 1};
  bench.Pass(2s);
  ASSERT_EQ(bench.core.phase(), Phase::kLock) << "their node may come back";
  bench.Pass(3s);
  EXPECT_TRUE(bench.Ended());
}

class TakeoverOfHeldMemory : public Takeover {
 protected:
  static Policy Holding() {
    Policy policy = Heir(4);
    policy.adopts = true;
    policy.began = true;
    return policy;
  }
  TakeoverOfHeldMemory() : Takeover(Holding()) {
    for (int rank = 0; rank < 4; ++rank) bench.claims[rank][0] = {{Rank(rank % 2), Rank(rank % 2 + 2)}, 2};
  }
  // Its launcher has seen it end, and holds what it registered and its memory.
  void EndWithState(int rank) {
    Ready ready;
    ready.layouts = bench.claims[rank];
    bench.Feed(FromAgent{{Term{1, 1}, Generation(5), Rank(rank), Incarnation(3)}, ready});
    bench.Feed(StateHeld{Rank(rank), HeldState{Incarnation(3), Step(9), true}});
    bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "killed by SIGKILL", std::nullopt});
  }
  void HearOfOneThatEndedLate() {
    bench.replacements_come = false;
    Arrive(2);
    bench.Feed(ProcessExited{Rank(0), Incarnation(3), "had ended", std::nullopt});
    bench.Pass(3300ms);
    bench.Feed(ProcessExited{Rank(1), Incarnation(3), "killed by SIGKILL", std::nullopt});
  }
};

// Rank 0 went with the controller's launcher and rank 2 was killed: nobody who lives is of their group.
TEST_F(TakeoverOfHeldMemory, KnowsAGroupThatWasLostWholeFromWhoHoldsItsMemory) {
  Ready ready;
  ready.layouts = bench.claims[2];
  bench.Feed(FromAgent{{Term{1, 1}, Generation(5), Rank(2), Incarnation(3)}, ready});
  bench.Feed(StateHeld{Rank(2), HeldState{Incarnation(3), Step(9), true}});
  bench.Feed(ProcessExited{Rank(2), Incarnation(), "had ended", std::nullopt});
  for (int rank : {1, 3}) Arrive(rank);
  bench.Pass(1300ms);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const auto moves = bench.Orders(Phase::kRepair, 0).back().moves;
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].destination, Rank(0));
  EXPECT_EQ(moves[0].sources, std::vector<Rank>{Rank(2)});
  EXPECT_TRUE(moves[1].adopt);
}

// Those that were in the run have all ended, and the processes in their places have heard of none.
TEST_F(TakeoverOfHeldMemory, SavesARunThatNobodyWhoLivesHasSeen) {
  for (int rank : {2, 3}) {
    Ready ready;
    ready.layouts = bench.claims[rank];
    bench.Feed(FromAgent{{Term{1, 1}, Generation(5), Rank(rank), Incarnation(3)}, ready});
    bench.Feed(StateHeld{Rank(rank), HeldState{Incarnation(3), Step(9), true}});
    bench.Feed(ProcessFound{Rank(rank), Incarnation(4)});
    bench.Feed(FromAgent{{{}, {}, Rank(rank), Incarnation(4)}, JoinRequest{.pid = 1, .host = "h"}});
  }
  bench.replacements_come = false;  // of ranks 0 and 1
  bench.Pass(1300ms);
  for (int rank : {2, 3}) bench.JoinAndReady(rank);
  bench.Pass(10s);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
  for (int rank : {2, 3}) EXPECT_EQ(bench.Orders(Phase::kDump, rank).size(), 1u) << rank;
}

// Its own ranks are new and know no run; the others' node comes back when it has long ceased to listen.
TEST_F(TakeoverOfHeldMemory, LearnsWhatTheRunIsFromANodeThatComesLate) {
  for (int rank : {0, 1}) {
    bench.Feed(ProcessFound{Rank(rank), Incarnation(4)});
    bench.Feed(FromAgent{{{}, {}, Rank(rank), Incarnation(4)}, JoinRequest{.pid = 1, .host = "h"}});
  }
  bench.replacements_come = false;
  bench.Pass(1300ms);
  for (int rank : {0, 1}) bench.JoinAndReady(rank);
  ASSERT_EQ(bench.core.phase(), Phase::kLock) << "no majority";
  bench.replacements_come = true;
  for (int rank : {2, 3}) EndWithState(rank);
  for (int rank : {2, 3}) bench.JoinAndReady(rank);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.step, kintsugi::Step(9));
}

// Of ranks that register nothing before it has chosen how to go on.
TEST_F(TakeoverOfHeldMemory, LearnsWhatTheRunIsFromWhatIsHeldAlone) {
  bench.replacements_come = false;
  for (int rank : {0, 1}) bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "had ended", std::nullopt});
  bench.Pass(1300ms);
  ASSERT_EQ(bench.core.phase(), Phase::kLock) << "no majority";
  for (int rank : {2, 3}) EndWithState(rank);
  ASSERT_TRUE(bench.core.incident().has_value());
  EXPECT_EQ(bench.core.incident()->step, kintsugi::Step(9));
}

// What is away is not waited for any more, but a majority still is, when rank 1's node comes back and ends its processes
// one after the other: nobody who has spoken by then holds a part of the state.
TEST_F(TakeoverOfHeldMemory, WaitsForTheNextWordOfALauncherThatHasComeBack) {
  HearOfOneThatEndedLate();
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  bench.Pass(50ms);
  EndWithState(3);
  ASSERT_FALSE(bench.Ended()) << bench.Ended()->text;
  EXPECT_EQ(bench.core.incident()->step, kintsugi::Step(9));
}

TEST_F(TakeoverOfHeldMemory, WaitsForTheNextWordNotForLong) {
  HearOfOneThatEndedLate();
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  bench.Pass(150ms);
  EXPECT_TRUE(bench.Ended());
}

// Two processes were about to map what is held of a whole group; they join before their launchers speak.
TEST_F(TakeoverOfHeldMemory, WaitsForWhatIsHeldOfARankThatIsHereWithoutState) {
  for (int rank : {1, 3}) Arrive(rank, Standing::kLocked);
  for (int rank : {0, 2}) JoinAgain(rank, Standing::kNew, 5);
  ASSERT_EQ(bench.core.phase(), Phase::kConfirm);
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  for (int rank : {0, 2}) {
    bench.Feed(StateHeld{Rank(rank), HeldState{Incarnation(2), Step(9), true}});
    bench.Feed(ProcessFound{Rank(rank), Incarnation(3)});
  }
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kAdopt);
}

TEST_F(TakeoverOfHeldMemory, WaitsForALauncherThatSaysNothingNoLongerThanForAnybody) {
  for (int rank = 0; rank < 3; ++rank) Arrive(rank, Standing::kLocked);
  JoinAgain(3, Standing::kNew, 5);
  ASSERT_EQ(bench.core.phase(), Phase::kConfirm);
  bench.Pass(1300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRespawn);
}

// The controller before may have told it to map what is held: then that is the memory that has failed.
TEST_F(TakeoverOfHeldMemory, FailsWithTheProcessThatMayHaveMappedIt) {
  bench.hold = Phase::kLock;
  for (int rank = 0; rank < 3; ++rank) Arrive(rank, Standing::kLocked);
  bench.Feed(StateHeld{Rank(3), HeldState{Incarnation(2), Step(9), true}});
  Arrive(3, Standing::kNew);
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  ASSERT_TRUE(bench.member(3).trust.held().has_value());
  bench.Say(3, FaultReport{.kind = FaultKind::kMemoryHigh});
  EXPECT_FALSE(bench.member(3).trust.held().has_value());
}

TEST_F(Takeover, AProcessThatKnowsNoRunWaitsUntilItIsKnown) {
  for (int rank = 0; rank < 3; ++rank) Arrive(rank);
  bench.Feed(ProcessFound{Rank(3), Incarnation(4)});
  const Header header{{}, {}, Rank(3), Incarnation(4)};
  bench.Feed(FromAgent{header, JoinRequest{.pid = 1, .host = "h"}});
  EXPECT_EQ(bench.member(3).life, Life::kStarting);
  EXPECT_FALSE(bench.member(3).connected);
  bench.Pass(1300ms);
  bench.JoinAndReady(3);
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  const auto replies = bench.Sent<JoinReply>();
  EXPECT_TRUE(replies.back().second.replacement);
}

TEST_F(Takeover, ACommErrorToldAgainIsNotForgotten) {
  Arrive(0);
  bench.Say(0, FaultReport{.kind = FaultKind::kCommError, .text = "reset"});
  for (int rank = 1; rank < 4; ++rank) Arrive(rank);
  EXPECT_EQ(bench.core.generation(), Generation(6));
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
}

TEST_F(Takeover, ASmallerPartWaitsAndThenSavesWithoutMovingLatest) {
  bench.replacements_come = false;
  Arrive(2);  // half of the ranks, not the lowest
  Arrive(3);
  bench.Pass(1300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_TRUE(bench.core.WaitsAreBounded());
  bench.Pass(3s);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable) << bench.Ended()->text;
  std::vector<PhaseOrder> renames;
  for (int rank : {2, 3})
    for (const PhaseOrder& order : bench.Orders(Phase::kRename, rank)) renames.push_back(order);
  ASSERT_EQ(renames.size(), 1u);
  EXPECT_FALSE(renames[0].moves_latest);
}

TEST_F(Takeover, WhoeverIsSeenToHaveEndedBlocksNobody) {
  bench.replacements_come = false;
  Arrive(2);
  Arrive(3);
  for (int rank : {0, 1}) bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "had ended", std::nullopt});
  bench.Pass(1300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);  // a majority: it waits for replacements, not for consent
}

TEST_F(Takeover, AProcessThatNeverCameProvesNothingOfTheOneBefore) {
  bench.replacements_come = false;
  Arrive(2);
  Arrive(3);
  bench.Pass(1300ms);
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  // Their node is away: what was to be started there was not, and what ran there may still run.
  for (int rank : {0, 1}) {
    ASSERT_EQ(bench.core.members()[static_cast<size_t>(rank)].life, Life::kStarting);
    bench.Feed(ProcessExited{.rank = Rank(rank),
                             .incarnation = bench.member(rank).incarnation,
                             .cause = "could not be started: its node is gone",
                             .since = std::nullopt,
                             .never_began = true});
  }
  EXPECT_EQ(bench.core.phase(), Phase::kLock) << "it acts without a majority";
}

TEST_F(Takeover, AProcessThatIsFoundMayHavePromisedItselfToAnother) {
  bench.replacements_come = false;
  Arrive(0);
  Arrive(1);
  for (int rank : {2, 3}) bench.Feed(ProcessFound{Rank(rank), Incarnation(3)});
  bench.claims.clear();
  bench.Exit(0);
  bench.Pass(1300ms);
  EXPECT_EQ(bench.core.phase(), Phase::kLock) << "one rank of four, and two that may side with another controller";
}

// One that was found and does not come may hang, as it did when the controller died.
TEST_F(Takeover, WhoWasFoundAndDoesNotComeIsEndedWhereItsVoteIsMissing) {
  Arrive(1);
  Arrive(2);
  for (int rank : {0, 3}) bench.Feed(ProcessFound{Rank(rank), Incarnation(3)});
  bench.Pass(1300ms);
  EXPECT_EQ(bench.Killed(), (std::set<int>{0, 3}));
  EXPECT_EQ(bench.core.phase(), Phase::kLock) << "until their launchers say that they have ended";
  for (int rank : {0, 3}) bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "killed by SIGKILL", std::nullopt});
  EXPECT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.All<IncidentClosed>().back().record.rung, Rung::kRespawn);
}

TEST_F(Takeover, OrdersNothingWhileItListens) {
  Arrive(0, Standing::kLocked);
  Arrive(0, Standing::kLocked);  // its connection broke meanwhile
  EXPECT_EQ(bench.core.phase(), Phase::kConfirm);
  EXPECT_TRUE(bench.Sent<ResumeOrder>().empty());
}

TEST_F(Takeover, TakesNothingForCompleteThatNobodyKnows) {
  // Ranks 0 and 1 held a layout of their own, and went with the controller: nobody else knows what.
  for (int rank : {0, 1}) bench.claims[rank][1] = GroupClaim{{Rank(0), Rank(1)}, 2};
  for (int rank : {2, 3}) bench.claims[rank][1] = GroupClaim{{Rank(2), Rank(3)}, 2};
  Arrive(2);
  Arrive(3);
  for (int rank : {0, 1}) bench.Feed(ProcessExited{Rank(rank), Incarnation(3), "had ended", std::nullopt});
  bench.Pass(1300ms);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitFailed);
}

// A replacement that could not even be started says nothing about the process before it, which may live behind a cut.
TEST(Consent, AReplacementThatNeverBeganConfirmsNoDeath) {
  Policy policy = Bench::QuickPolicy(4);
  policy.needs_consent = true;
  policy.consent_wait = 5s;
  Bench bench(policy);
  bench.Run();
  bench.replacements_come = false;
  for (int rank : {1, 2, 3}) {
    bench.mute.insert(rank);
    bench.silent.insert(rank);
    bench.Close(rank);
  }
  bench.Pass(1500ms);
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  for (int rank : {1, 2, 3})
    bench.Feed(ProcessExited{Rank(rank), bench.member(rank).incarnation, "could not be started", std::nullopt, true});
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  bench.Pass(5s);
  ASSERT_TRUE(bench.Ended());
  for (const PhaseOrder& order : bench.Orders(Phase::kRename, 0)) EXPECT_FALSE(order.moves_latest);
}

TEST_F(Takeover, AnOlderControllersAgentIsNotAnswered) {
  ArriveAll();
  const Header newer{Term{3, 1}, Generation(5), Rank(0), Incarnation(3)};
  const size_t before = bench.Sent<JoinReply>().size();
  bench.Feed(FromAgent{newer, JoinRequest{.pid = 1, .host = "h", .joined_before = true}});
  EXPECT_EQ(bench.Sent<JoinReply>().size(), before);
}

}  // namespace
}  // namespace kintsugi::core
