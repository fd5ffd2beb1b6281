// Mistakes of a trainer: each is an error that names the place, and none is a crash or a wait.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "callbacks/handlers/state_service.h"
#include "runtime/agent/internals.h"
#include "tests/inproc/world.h"

namespace kintsugi::inproc {
namespace {

// A world whose rank 2 makes a mistake that the controller finds; gives what the run ended with.
core::RunEnded EndedBecause(std::function<void(ToyTrainer&)> mistake) {
  WorldOptions options;
  options.tweaks[2].before_registration = std::move(mistake);
  World world(options);
  world.RunAll();
  EXPECT_EQ(world.result(0).code(), StatusCode::kEnded);
  EXPECT_EQ(world.result(0).message(), world.ended()->text);
  EXPECT_EQ(world.trainer(0).exit_code(), core::kExitStartup);
  return *world.ended();
}

void ExpectNames(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
}

TEST(Registry, AKeyThatAPeerLacksIsNamedWithBothRanks) {
  ExpectNames(EndedBecause([](ToyTrainer& t) { t.descriptions().pop_back(); }).text, {"momentum", "rank 0", "rank 2"});
}

TEST(Registry, AnotherShapeIsNamedWithBothValues) {
  const auto change = [](ToyTrainer& t) {
    t.descriptions()[1].local_shape = {16};
    t.descriptions()[1].memory.size_bytes = 64;
  };
  ExpectNames(EndedBecause(change).text, {"momentum", "rank 0", "rank 2", "[16]", "[32]"});
}

TEST(Registry, AnotherTypeIsNamedWithBothValues) {
  const auto change = [](ToyTrainer& t) { t.descriptions()[1].dtype = DType::kInt32; };
  ExpectNames(EndedBecause(change).text, {"momentum", "rank 0", "rank 2", "float32", "int32"});
}

TEST(Registry, ReplicasThatStartWithOtherBytesAreNamed) {
  ExpectNames(EndedBecause([](ToyTrainer& t) { t.weights()[7] += 1; }).text, {"layout 0", "ranks 0", "2", "start equal"});
}

TEST(Registry, GroupsThatDisagreeAreNamedWithBothClaims) {
  ExpectNames(EndedBecause([](ToyTrainer& t) { t.group() = {Rank(0), Rank(2)}; }).text,
              {"layout 0", "rank 0", "rank 2", "{0, 1, 2, 3}", "{0, 2}"});
}

// What one rank's own agent refuses: `attempt` runs where it says.
Status Alone(Tweaks tweaks) {
  WorldOptions options;
  options.ranks = 1;
  options.replicas = 1;
  options.steps = 2;
  options.loss_timeout = std::chrono::milliseconds(300);
  options.tweaks[0] = std::move(tweaks);
  World world(options);
  world.StartAll();
  return world.result(0);
}

TEST(Registry, OverlapIsRefusedAtOnceAndNamesBothKeys) {
  const Status status = Alone({.before_registration = [](ToyTrainer& t) {
    t.descriptions()[0].memory.data = t.momentum();
    t.descriptions()[0].memory.kind = MemoryKind::kHeap;
  }});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  ExpectNames(status.message(), {"weights", "momentum", "overlap"});
}

TEST(Registry, AnObjectOfNoKindIsRefused) {
  const Status status = Alone({.after_registration = [](ToyTrainer& t) {
    return t.agent().RegisterObject({.key = "iterator", .kind = static_cast<ObjectKind>(9)});
  }});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  ExpectNames(status.message(), {"iterator", "derived", "mirrored"});
}

TEST(Layout, WhatCannotBeIsRefusedAtOnce) {
  EXPECT_TRUE(Alone({.after_registration = [](ToyTrainer& t) {
    Agent& agent = t.agent();
    EXPECT_FALSE(agent.SetReplicaLayout(-1, {Rank(0)}, 1).ok());
    EXPECT_FALSE(agent.SetReplicaLayout(0, {}, 1).ok());
    EXPECT_FALSE(agent.SetReplicaLayout(0, {Rank(0)}, 0).ok());
    EXPECT_FALSE(agent.SetReplicaLayout(0, {Rank(0), Rank(1), Rank(2)}, 2).ok());
    EXPECT_FALSE(agent.SetReplicaLayout(0, {Rank(1)}, 1).ok());
    EXPECT_FALSE(agent.SetReplicaLayout(0, {Rank(0), Rank(0)}, 2).ok());
    return Status::Ok();
  }}).ok());
}

// Of state that no layout holds a lost process would come back with whatever was there.
TEST(Layout, ATensorOfALayoutThatNobodyDeclaredIsRefusedAtRun) {
  const Status status = Alone({.before_registration = [](ToyTrainer& t) { t.descriptions()[1].layout = 3; }});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectNames(status.message(), {"momentum", "layout 3", "SetReplicaLayout"});
}

TEST(Layout, WithoutTensorsIsRefusedAtRun) {
  const Status status = Alone(
      {.after_registration = [](ToyTrainer& t) { return t.agent().SetReplicaLayout(2, {Rank(0)}, 1); }});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectNames(status.message(), {"layout 2", "no registered tensor"});
}

TEST(CallOrder, RunWithoutHandlersNamesTheMissingOne) {
  const Status status = Alone({.register_handlers = false});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectNames(status.message(), {"stop"});
}

TEST(CallOrder, ADerivedObjectNeedsARollbackHandler) {
  const Status status = Alone({.after_registration = [](ToyTrainer& t) -> Status {
    const HandlerFunction nothing = [](HandlerContext&, void*) { return Status::Ok(); };
    for (const HandlerKind kind : {HandlerKind::kStop, HandlerKind::kClean, HandlerKind::kRebuildGroup})
      KINTSUGI_RETURN_IF_ERROR(t.agent().RegisterHandler(kind, nothing, nullptr));
    return t.agent().RegisterObject({.key = "a schedule", .kind = ObjectKind::kDerived});
  }, .register_handlers = false});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectNames(status.message(), {"a schedule", "derived", "rollback"});
}

TEST(CallOrder, AGateNeedsAFunctionExactlyWhenItIsTheTrainers) {
  EXPECT_TRUE(Alone({.after_registration = [](ToyTrainer& t) {
    const GateFunction gate = [](Step, void*) { return Status::Ok(); };
    EXPECT_EQ(t.agent().SetGate(GateMode::kTrainer).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(t.agent().SetGate(GateMode::kOff, gate).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(t.agent().SetGate(GateMode::kControlPlane, gate).code(), StatusCode::kInvalidArgument);
    return Status::Ok();
  }}).ok());
}

TEST(CallOrder, AfterRunHasBegunNothingCanBeSetOrRegistered) {
  static float late[4];
  EXPECT_TRUE(Alone({.at_step = [](ToyTrainer& t, Step) {
    Agent& agent = t.agent();
    const auto refused = [](const Status& status) { EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition); };
    refused(agent.RegisterTensor({.key = "late", .global_shape = {4}, .local_shape = {4}, .global_offset = {0},
                                  .memory = {.data = late, .size_bytes = sizeof late}}));
    refused(agent.RegisterObject({.key = "late"}));
    refused(agent.SetReplicaLayout(0, {Rank(0)}, 1));
    refused(agent.RegisterHandler(HandlerKind::kStop, [](HandlerContext&, void*) { return Status::Ok(); }, nullptr));
    refused(AgentInternals::SetStateService(agent, nullptr));
    refused(agent.SetGate(GateMode::kOff));
    refused(agent.Run([](Step, void*) { return Status::Ok(); }, nullptr));
    return Status::Ok();
  }}).ok());
}

TEST(CallOrder, UpdatesAreBegunAndEndedOneByOne) {
  EXPECT_TRUE(Alone({.at_step = [](ToyTrainer& t, Step step) {
    Agent& agent = t.agent();
    const auto refused = [](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    };
    refused(agent.EndUpdate(step));
    refused(agent.BeginUpdate(step.Next()));
    refused(agent.BeginUpdate(Step(0)));
    if (step.value() > 1) refused(agent.BeginUpdate(step.Previous()));
    EXPECT_TRUE(agent.Poll().ok());
    EXPECT_EQ(agent.Report(step, 0, std::vector<uint64_t>(9000)).code(), StatusCode::kInvalidArgument);
    return Status::Ok();
  }}).ok());
}

TEST(CallOrder, AStepIsBegunOnceAndTheNextOneOnlyAfterItsUpdate) {
  EXPECT_TRUE(Alone({.at_step = [](ToyTrainer& t, Step step) {
    Agent& agent = t.agent();
    const auto refused = [](const Status& status, const char* word) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
      ExpectNames(status.message(), {word});
    };
    refused(agent.BeginStep(step), "twice");
    refused(agent.BeginStep(step.Next()), "is the one to compute");
    refused(agent.BeginStep(Step(step.value() + 7)), "is the one to compute");
    refused(agent.EnterPhase(step.Next(), TrainPhase::kForward), "is the one to compute");
    EXPECT_TRUE(agent.EnterPhase(step, TrainPhase::kForward).ok());
    return Status::Ok();
  }}).ok());
}

TEST(CallOrder, ASecondThreadInTheLoopIsRefused) {
  EXPECT_TRUE(Alone({.at_step = [](ToyTrainer& t, Step step) {
    Status begun, update, polled;
    std::thread([&] {
      begun = t.agent().BeginStep(step);
      update = t.agent().BeginUpdate(step);
      polled = t.agent().Poll();
    }).join();
    for (const Status& status : {begun, update}) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
      ExpectNames(status.message(), {"second thread"});
    }
    EXPECT_TRUE(polled.ok()) << "any thread may ask";
    return Status::Ok();
  }}).ok());
}

TEST(Reports, OfMemoryThatIsNotRegisteredAreRefused) {
  EXPECT_TRUE(Alone({.at_step = [](ToyTrainer& t, Step) {
    const Status status = t.agent().ReportMemoryError({"weights", "weight"}, "a page");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    ExpectNames(status.message(), {"'weight'", "not registered"});
    return Status::Ok();
  }}).ok());
}

TEST(Rendezvous, AValueThatTheStoreWouldDropIsRefused) {
  std::atomic<int> refused{0};
  EXPECT_TRUE(Alone({.handler = [&](HandlerKind kind, HandlerContext& call, ToyTrainer&) {
    if (kind != HandlerKind::kRebuildGroup) return Status::Ok();
    EXPECT_TRUE(call.store->Set("fits", std::vector<uint8_t>(64 * 1024)).ok());
    const Status status = call.store->Set("does not", std::vector<uint8_t>(64 * 1024 + 1));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    ExpectNames(status.message(), {"does not", "65537", "65536"});
    ++refused;
    return Status::Ok();
  }}).ok());
  EXPECT_GE(refused, 1);
}

TEST(CallOrder, RunNeedsALoop) {
  EXPECT_TRUE(Alone({.after_registration = [](ToyTrainer& t) {
    EXPECT_EQ(t.agent().Run(nullptr, nullptr).code(), StatusCode::kInvalidArgument);
    return Status::Ok();
  }}).ok());
}

}  // namespace
}  // namespace kintsugi::inproc
