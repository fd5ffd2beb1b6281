// What a trainer says of itself in the loop, and what its handlers are told of an incident.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "runtime/agent/internals.h"
#include "tests/inproc/reference.h"

namespace kintsugi::inproc {
namespace {

using namespace std::chrono_literals;

// Rank 1 says at step 4 of its first life, from where `report` is called, that something is damaged.
void AtStepFour(WorldOptions& options, std::function<Status(ToyTrainer&)> report) {
  auto told = std::make_shared<std::atomic<bool>>(false);
  options.tweaks[1].at_step = [told, report = std::move(report)](ToyTrainer& t, Step step) {
    if (step != Step(4) || told->exchange(true)) return Status::Ok();
    return report(t);
  };
}

TEST(MemoryReport, ComesFromAnyThread) {
  WorldOptions options;
  AtStepFour(options, [](ToyTrainer& t) {
    Status told;
    std::thread([&] { told = t.agent().ReportMemoryError({"weights"}, "a scrubber found it"); }).join();
    EXPECT_EQ(told.code(), StatusCode::kInterrupted);
    // The trainer's thread is not told: it computes on until it meets the incident.
    while (t.agent().Poll().ok()) std::this_thread::sleep_for(1ms);
    return Status::Ok();
  });
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kPatch);
  EXPECT_EQ(OnlyIncident(world).ranks, std::vector<Rank>{Rank(1)});
}

// The rungs of what a report with this time leads to, where there is nothing to go back to.
core::RunEnded EndedBy(ErrorTime when) {
  WorldOptions options;
  AtStepFour(options, [when](ToyTrainer& t) { return t.agent().ReportMemoryError({}, "double bit error", when); });
  World world(options);
  world.RunAll();
  return *world.ended();
}

TEST(MemoryReport, OfDamageThatNothingWasComputedWithIsRepaired) {
  EXPECT_EQ(EndedBy(ErrorTime::Now()).exit_code, core::kExitSuccess);
  EXPECT_EQ(EndedBy(ErrorTime::At(SteadyClock::SteadyNow() + 1h)).exit_code, core::kExitSuccess);
}

TEST(MemoryReport, OfDamageThatUpdatesWereComputedWithGoesBackBehindThemOrEnds) {
  for (const ErrorTime when : {ErrorTime::Unknown(), ErrorTime::At(SteadyClock::SteadyNow())}) {
    const core::RunEnded ended = EndedBy(when);
    EXPECT_EQ(ended.exit_code, core::kExitFailed);
    EXPECT_NE(ended.text.find("double bit error"), std::string::npos) << ended.text;
  }
}

TEST(Loop, ThatFailsAtTheSameStepThriceEndsTheRunAndSaysWhy) {
  WorldOptions options;
  options.tweaks[2].at_step = [](ToyTrainer&, Step step) -> Status {
    if (step == Step(4)) throw std::runtime_error("label 4711 is out of range");
    return Status::Ok();
  };
  World world(options);
  world.RunAll();
  EXPECT_EQ(world.ended()->exit_code, core::kExitFailed);
  for (const char* words : {"rank 2 failed 3 times at step 4", "label 4711 is out of range"})
    EXPECT_NE(world.ended()->text.find(words), std::string::npos) << world.ended()->text;
  EXPECT_EQ(world.incidents().size(), 3u);
}

TEST(Loop, ThatSkipsAnUpdateIsToldAndItsNeighboursAreNot) {
  WorldOptions options;
  options.policy.hang_least = 1s;
  options.tweaks[2].at_step = [](ToyTrainer& t, Step step) {
    return step == Step(4) ? t.agent().BeginStep(step.Next()) : Status::Ok();
  };
  World world(options);
  world.RunAll();
  EXPECT_EQ(world.ended()->exit_code, core::kExitFailed);
  for (const core::IncidentRecord& incident : world.incidents()) EXPECT_EQ(incident.ranks, std::vector<Rank>{Rank(2)});
  for (const char* words : {"rank 2 failed 3 times", "BeginStep(5)", "committed(3)"})
    EXPECT_NE(world.ended()->text.find(words), std::string::npos) << world.ended()->text;
}

TEST(Handlers, LearnWhoBrokeWhoIsNewAndTheRung) {
  struct Seen {
    HandlerKind kind;
    Rung rung;
    std::vector<Rank> faults, replaced;
  };
  std::mutex mutex;
  std::vector<Seen> seen;
  WorldOptions options;
  options.tweaks[0].handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer&) {
    std::lock_guard lock(mutex);
    if (call.generation > Generation(1)) seen.push_back({kind, call.rung, call.fault_ranks, call.replaced_ranks});
    return Status::Ok();
  };
  World world(options);
  world.script().Hold(0, 3, Point::kForward);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(0, 3, Point::kForward));
  world.Kill(3);
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  world.Replace(3);
  world.script().ReleaseAll();
  ExpectSameAsUndisturbed(world);
  std::lock_guard lock(mutex);
  std::set<HandlerKind> kinds;
  for (const Seen& call : seen) {
    if (call.faults.empty()) continue;  // the end of the run
    kinds.insert(call.kind);
    EXPECT_EQ(call.faults, std::vector<Rank>{Rank(3)}) << HandlerKindName(call.kind);
    if (call.kind == HandlerKind::kStop) continue;
    EXPECT_EQ(call.rung, Rung::kRespawn) << HandlerKindName(call.kind);
    if (call.kind == HandlerKind::kClean) continue;
    EXPECT_EQ(call.replaced, std::vector<Rank>{Rank(3)}) << HandlerKindName(call.kind);
  }
  EXPECT_EQ(kinds, (std::set<HandlerKind>{HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup,
                                          HandlerKind::kRollback}));
}

// ---- a stop handler that takes its time ------------------------------------------------------------------------------

TEST(StopHandler, MayTakeLongerThanTheSilenceLimit) {
  WorldOptions options;
  options.policy.silence = 1s;
  options.tweaks[1].handler = [](HandlerKind kind, HandlerContext&, ToyTrainer&) {
    if (kind == HandlerKind::kStop) std::this_thread::sleep_for(2500ms);
    return Status::Ok();
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRetry);
}

TEST(StopHandler, NoOtherHandlerRunsBesideIt) {
  WorldOptions options;
  std::atomic<bool> inside{false};
  std::atomic<int> beside{0};
  options.tweaks[2].handler = [&](HandlerKind kind, HandlerContext&, ToyTrainer&) {
    if (kind != HandlerKind::kStop) {
      beside += inside;
      return Status::Ok();
    }
    inside = true;
    std::this_thread::sleep_for(300ms);
    inside = false;
    return Status::Ok();
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);  // its thread is parked long before its stop returns
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(beside, 0);
}

TEST(StopHandler, ThatDoesNotReturnCostsItsProcess) {
  WorldOptions options;
  options.policy.silence = 1s;
  options.policy.step_timeout = 3s;
  std::atomic<bool> let_go{false}, cancelled{false};
  options.tweaks[1].handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer& t) {
    if (kind != HandlerKind::kStop || t.join_kind() != JoinKind::kFresh || t.updates() > 3) return Status::Ok();
    while (!let_go) std::this_thread::sleep_for(1ms), cancelled = cancelled || call.cancel->cancelled();
    return Status::Ok();
  };
  World world(options);
  world.script().Do(2, 3, Point::kForward, Fault::kThrow);
  world.StartAll();
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  while (world.transitions().size() < 8 || world.transitions().back().to != core::Phase::kAdmit)
    std::this_thread::sleep_for(2ms);  // the run's own start also waits for processes
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).rung, Rung::kRespawn);
  EXPECT_TRUE(cancelled) << "it was told that its time is over";
  let_go = true;
  EXPECT_EQ(world.trainers()[1]->Wait().code(), StatusCode::kEnded);
}

// Its stop handler has returned; what it waits in is ended by nothing but a limit of its own, which is longer.
TEST(Stop, WhoStandsOnInAStepHasTheLearntLimitWhateverItBeganWith) {
  WorldOptions options;
  options.policy.silence = 1s;
  options.policy.hang_least = 3s;
  std::atomic<bool> let_go{false};
  options.steps = 10;
  options.tweaks[-1].at_step = [](ToyTrainer&, Step) {
    std::this_thread::sleep_for(60ms);  // of steps shorter than a beat only some are seen
    return Status::Ok();
  };
  options.tweaks[1].at_step = [&](ToyTrainer& t, Step step) {
    std::this_thread::sleep_for(60ms);
    while (step == Step(8) && t.join_kind() == JoinKind::kFresh && !let_go) std::this_thread::sleep_for(1ms);
    return Status::Ok();
  };
  World world(options);
  world.script().Do(2, 8, Point::kForward, Fault::kThrow);
  world.StartAll();
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kStop));
  while (world.transitions().back().to != core::Phase::kAdmit) std::this_thread::sleep_for(2ms);
  world.Replace(1);
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(OnlyIncident(world).signal, core::FaultKind::kException);
  const auto notices = world.notices();
  EXPECT_TRUE(std::any_of(notices.begin(), notices.end(), [](const std::string& text) {
    return text.find("its thread did not come out of its step within 3000 ms") != std::string::npos;
  })) << world.Story();
  let_go = true;
  EXPECT_EQ(world.trainers()[1]->Wait().code(), StatusCode::kEnded);
}

// ---- what a trainer can ask its agent for ------------------------------------------------------------------------------

TEST(AgentState, IsWhatWasRegisteredAndWhatPartnersKeep) {
  WorldOptions options;
  std::array<std::map<int, uint64_t>, 4> digests;
  std::array<std::map<std::string, std::vector<uint8_t>>, 4> own, partners;
  std::array<StatusCode, 4> unknown{};
  options.tweaks[-1].at_step = [&](ToyTrainer& t, Step step) -> Status {
    if (step != Step(4)) return Status::Ok();
    const auto self = static_cast<size_t>(t.rank());
    std::vector<std::string> keys;
    for (const ShardedTensor& tensor : t.agent().tensors()) keys.push_back(tensor.key);
    EXPECT_EQ(keys, (std::vector<std::string>{"momentum", "weights"}));
    const auto digest = t.agent().StateDigests();
    const auto mine = t.agent().MirroredOf(Rank(t.rank()), Step(3));
    const auto theirs = t.agent().MirroredOf(Rank((t.rank() + 2) % 4), Step(3));
    EXPECT_TRUE(digest.ok() && mine.ok() && theirs.ok()) << theirs.status().ToString();
    if (!digest.ok() || !mine.ok() || !theirs.ok()) return Status::Ok();
    digests[self] = *digest;
    own[self] = *mine;
    partners[self] = *theirs;
    unknown[self] = t.agent().MirroredOf(Rank((t.rank() + 1) % 4), Step(3)).status().code();
    return Status::Ok();
  };
  World world(options);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(digests[rank], digests[(rank + 2) % 4]);  // of one shard
    EXPECT_FALSE(own[rank].empty());
    EXPECT_EQ(partners[rank], own[(rank + 2) % 4]);
    EXPECT_EQ(unknown[rank], StatusCode::kNotFound);
  }
  EXPECT_NE(digests[0], digests[1]);
}

// ---- one default replaced alone ----------------------------------------------------------------------------------------

TEST(Defaults, CanBeWrappedOneByOne) {
  struct Wrap {
    HandlerRegistry::Entry before;
    std::atomic<int> calls{0};
  };
  static Wrap wrap;
  WorldOptions options;
  options.tweaks[-1].after_registration = [](ToyTrainer& t) -> Status {
    EXPECT_TRUE(AgentInternals::state_service(t.agent()));
    if (t.rank() != 0) return Status::Ok();
    wrap.before = t.agent().handler(HandlerKind::kRepair);
    EXPECT_TRUE(wrap.before.function);
    return t.agent().RegisterHandler(
        HandlerKind::kRepair,
        [](HandlerContext& call, void*) {
          ++wrap.calls;
          return wrap.before.function(call, wrap.before.context);
        },
        nullptr);
  };
  World world(options);
  world.script().Do(0, 3, Point::kForward, Fault::kMemoryHigh);
  world.RunAll();
  ExpectSameAsUndisturbed(world);
  EXPECT_EQ(wrap.calls, 1);
}

}  // namespace
}  // namespace kintsugi::inproc
