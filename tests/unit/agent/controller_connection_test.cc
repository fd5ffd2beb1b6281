// An agent and its controller over a real connection: how it joins, what it hears and tells, what becomes of a controller
// that is lost or refuses it; and what ends with the run.
#include "runtime/agent/controller_connection.h"

#include "runtime/net/server.h"
#include "runtime/wire/codec.h"
#include "tests/unit/agent/whole_agent.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Hears an agent and says what the test wants, on the agent's thread.
class SaidController {
 public:
  SaidController(boost::asio::io_context& io, std::shared_ptr<const net::Secret> secret, uint16_t port = 0) {
    net::ServerOptions options;
    options.self = {"job", std::string(net::kControllerRole)};
    options.port = port;
    net::ServerHandlers handlers;
    handlers.on_open = [this](const net::ConnectionPtr& connection) { agent = connection; };
    handlers.on_frame = [this](const net::ConnectionPtr&, std::string_view payload) { Hear(payload); };
    handlers.on_close = [this](const net::ConnectionPtr&, const Status&) { agent.reset(); };
    handlers.on_refused = [](const std::string&, net::CloseReason, const Status&) {};
    server_ = net::Server::Listen(io, options, std::move(secret), handlers).value();
  }
  uint16_t port() const { return server_->port(); }
  void Say(core::Header header, const core::ControllerMessage& message) {
    (void)agent->Send(wire::Encode("job", header, message));
  }

  net::ConnectionPtr agent;
  std::vector<wire::AgentFrame> heard;
  core::JoinReply reply;  // to whoever joins
  core::Header as{Term(1), Generation(3), Rank(0), Incarnation(2)};

 private:
  void Hear(std::string_view payload) {
    Result<wire::AgentFrame> frame = wire::DecodeFromAgent("job", payload);
    ASSERT_TRUE(frame.ok()) << frame.status().ToString();
    heard.push_back(*frame);
    const auto* message = std::get_if<core::AgentMessage>(&frame->message);
    if (message && std::holds_alternative<core::JoinRequest>(*message)) Say(as, reply);
  }
  std::unique_ptr<net::Server> server_;
};

// What ends the run from the side of the connection.
struct Lost final : ConnectionEnds {
  void OnRunLost(const std::string& why) override { reasons.push_back(why); }
  std::vector<std::string> reasons;
};

class Connection : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(shared.page.Open(-1).ok());
    shared.gate.Open(shared.page.words());
    on.thread.Start(actor);
    Look([this] { controller = std::make_unique<SaidController>(on.thread.io(), secret); });
    AgentOptions& options = shared.self.options;
    options.job = "job";
    options.world_size = 2;
    options.controller_port = controller->port();
    options.join_timeout = 30s;
  }
  void TearDown() override {
    Look([this] { controller.reset(); });
    on.Stop();
  }
  Status Join() {
    KINTSUGI_RETURN_IF_ERROR(on.connection.Prepare(secret, lost));
    on.thread.Call([this] { on.connection.Connect(); });
    return on.connection.AwaitJoined();
  }
  // On the agent's thread.
  void Look(const std::function<void()>& look) {
    std::promise<void> done;
    on.thread.Call([&] {
      look();
      done.set_value();
    });
    done.get_future().wait();
  }
  bool Is(const std::function<bool()>& so) {
    bool is = false;
    Look([&] { is = so(); });
    return is;
  }
  void Await(const std::function<bool()>& so) {
    for (const TimePoint until = SteadyClock::SteadyNow() + 60s; SteadyClock::SteadyNow() < until;) {
      if (Is(so)) return;
      std::this_thread::sleep_for(1ms);
    }
    FAIL() << "it does not come about";
  }
  template <typename Message>
  std::vector<Message> All() {
    std::vector<Message> all;
    Look([&] {
      if (!controller) return;
      for (const wire::AgentFrame& frame : controller->heard)
        if (const auto* message = std::get_if<core::AgentMessage>(&frame.message))
          if (const auto* one = std::get_if<Message>(message)) all.push_back(*one);
    });
    return all;
  }
  // The controller is another process, on the same port.
  void StartAnew(core::Header as, core::JoinReply reply = {}) {
    const uint16_t port = controller->port();
    Look([&] {
      controller.reset();
      controller = std::make_unique<SaidController>(on.thread.io(), secret, port);
      controller->as = as;
      controller->reply = std::move(reply);
    });
  }

  Recorder actor;
  Lost lost;
  std::shared_ptr<const net::Secret> secret = net::Secret::Generate().value();
  SharedParts shared{AgentOptions(), NullLogSink(), [](Generation, core::AgentMessage) {}};
  ThreadHalf on{shared};
  std::unique_ptr<SaidController> controller;
};

TEST_F(Connection, JoinsAndTakesWhatTheControllerSays) {
  controller->reply.save_every = 7;
  controller->reply.replacement = true;
  const Status joined = Join();
  ASSERT_TRUE(joined.ok()) << joined.ToString();
  EXPECT_EQ(shared.self.options.incarnation, Incarnation(2)) << "without a launcher the controller gives it";
  EXPECT_EQ(shared.self.generation, Generation(3));
  EXPECT_EQ(shared.self.join.save_every, 7u);
  const auto joins = All<core::JoinRequest>();
  ASSERT_THAT(joins, SizeIs(1));
  EXPECT_FALSE(joins[0].joined_before);
  EXPECT_FALSE(joins[0].watched_by_launcher);
  EXPECT_EQ(joins[0].standing, core::Standing::kNew);
}

TEST_F(Connection, IsRefusedByName) {
  controller->reply.accepted = false;
  controller->reply.text = "rank 0 is there already";
  const Status joined = Join();
  EXPECT_EQ(joined.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(joined.message(), ::testing::AllOf(HasSubstr("rank 0 could not join"), HasSubstr("there already")));
  EXPECT_THAT(lost.reasons, IsEmpty()) << "the caller of Join has given up";
}

TEST_F(Connection, SaysWhereNobodyAnswers) {
  shared.self.options.join_timeout = 50ms;
  Look([this] { controller.reset(); });
  const Status joined = Join();
  EXPECT_EQ(joined.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(joined.message(), HasSubstr("rank 0 could not join"));
  EXPECT_THAT(lost.reasons, IsEmpty()) << "there is no run yet that could be lost";
}

TEST_F(Connection, PassesOrdersToTheCoreOnceItHasJoined) {
  ASSERT_TRUE(Join().ok());
  Look([this] { controller->Say(controller->as, core::InjectOrder{"1 kill:0@5"}); });
  std::vector<core::AgentAction> actions;
  Await([this] { return !actor.actions.empty(); });
  Look([&] { actions = actor.actions; });
  ASSERT_THAT(actions, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<core::ArmInjection>(actions[0]));
}

TEST_F(Connection, JoinsAnewWhereItIsLost) {
  ASSERT_TRUE(Join().ok());
  core::Header next = controller->as;
  next.term = Term(4);
  StartAnew(next);
  Await([this] { return on.thread.core().term() == Term(4); });
  const auto joins = All<core::JoinRequest>();
  ASSERT_THAT(joins, SizeIs(1));
  EXPECT_TRUE(joins[0].joined_before);
  EXPECT_THAT(lost.reasons, IsEmpty());
}

TEST_F(Connection, ObeysNoControllerThatWasReplacedAndDoesNotKnowIt) {
  controller->as.term = Term(4);
  ASSERT_TRUE(Join().ok());
  core::Header old = controller->as;
  old.term = Term(3);
  StartAnew(old);
  Await([this] { return controller->heard.size() >= 2; });
  EXPECT_EQ(on.thread.core().term(), Term(4));
  EXPECT_THAT(lost.reasons, IsEmpty()) << "the one that replaced it will be found";
}

TEST_F(Connection, EndsTheRunWhereALaterControllerRefusesIt) {
  ASSERT_TRUE(Join().ok());
  core::JoinReply refusal;
  refusal.accepted = false;
  refusal.text = "another life of rank 0 is there";
  StartAnew(controller->as, refusal);
  Await([this] { return !lost.reasons.empty(); });
  EXPECT_THAT(lost.reasons, ElementsAre(HasSubstr("another life of rank 0")));
}

TEST_F(Connection, EndsTheRunWhereNoControllerComesBack) {
  shared.self.options.controller_loss_timeout = 50ms;
  ASSERT_TRUE(Join().ok());
  Look([this] { controller.reset(); });
  Await([this] { return !lost.reasons.empty(); });
  EXPECT_THAT(lost.reasons, ElementsAre(HasSubstr("no controller: ")));
}

TEST_F(Connection, LooksForNobodyOnceTheRunEnds) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(shared.inbox.BeginEnd());
  StartAnew(controller->as);
  Look([this] { on.connection.Send(Generation(3), core::Resumed{}); });
  EXPECT_THAT(All<core::JoinRequest>(), IsEmpty());
  EXPECT_THAT(lost.reasons, IsEmpty());
}

TEST_F(Connection, TellsReportsBeforeWhatFollowsThem) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(ReportWriter(shared.page.words().reports).Publish(5, 0.5, {}));
  Look([this] {
    controller->heard.clear();
    on.connection.Send(Generation(3), core::Finished{.step = Step(5)});
  });
  Await([this] { return controller->heard.size() == 2; });
  Look([this] {
    const auto* report = std::get_if<wire::RankReport>(&controller->heard[0].message);
    ASSERT_TRUE(report) << "the controller that hears of a step has its reports";
    EXPECT_EQ(report->step, 5u);
    EXPECT_EQ(controller->heard[1].header.incarnation, Incarnation(2));
  });
}

TEST_F(Connection, BeatsWhereNoLauncherReadsItsPage) {
  ASSERT_TRUE(Join().ok());
  EXPECT_TRUE(on.connection.speaks_alone());
  Look([this] { on.pulse.Beat(); });
  Await([this] { return controller->heard.size() >= 2; });
  EXPECT_FALSE(All<core::Beat>().empty());
}

// ---- the end of the run --------------------------------------------------------------------------------------------------

class EndOfARun : public GuardedAgent {};

TEST_F(EndOfARun, FreesAllThatWait) {
  BeginGuard();
  const GuardTask task = Order(Of(core::Phase::kClean));
  ASSERT_EQ(task.kind, TaskKind::kClean);
  Status got, joined;
  std::thread waits([&] {
    got = shared.store.Get(Generation(1), "key", SteadyClock::SteadyNow() + 1h).status();
    joined = on.connection.AwaitJoined();
  });
  on.thread.Call([this] { on.orders.End({1, "rank 1 is lost for good"}); });
  waits.join();
  Settle();  // those who wait are freed one after the other
  EXPECT_EQ(got.code(), StatusCode::kCancelled);
  EXPECT_EQ(joined.code(), StatusCode::kEnded);
  EXPECT_TRUE(task.call->cancel->cancelled());
  ASSERT_TRUE(trainer.tasks.Finish({StatusCode::kCancelled, "cancelled"}).ok());
  const GuardTask end = Next();
  EXPECT_EQ(end.kind, TaskKind::kEnded);
  EXPECT_EQ(end.text, "rank 1 is lost for good");
}

TEST_F(EndOfARun, IsWhatIsThrownOnTheAgentsThread) {
  BeginGuard();
  Look([this] { on.orders.OnThrown("a check failed"); });
  const GuardTask end = Next();
  EXPECT_EQ(end.kind, TaskKind::kEnded);
  EXPECT_THAT(end.text, HasSubstr("the agent failed: a check failed"));
  EXPECT_EQ(trainer.guard.exit_code(), 1);
}

TEST_F(EndOfARun, IsTheFirst) {
  BeginGuard();
  Look([this] {
    on.orders.End({0, "all have finished"});
    on.orders.OnRunLost("no controller");
  });
  EXPECT_EQ(Next().text, "all have finished");
}

TEST_F(EndOfARun, ComesBeforeAReleaseThatWasNotTaken) {
  BeginGuard();
  Tell(core::ResumeOrder{Step(4)});
  Settle();
  on.thread.Call([this] { on.orders.End({1, "it ends"}); });
  EXPECT_EQ(Next().kind, TaskKind::kEnded);
  EXPECT_TRUE(shared.gate.Word().locked);
}

TEST_F(EndOfARun, LocksGivesBackAReleaseThatWasNotTaken) {
  BeginGuard();
  Tell(core::ResumeOrder{Step(4)});
  Tell(core::LockOrder{}, Generation(2));
  EXPECT_EQ(Next().kind, TaskKind::kNothing) << "the release is void";
  Tell(core::StopOrder{}, Generation(2));
  EXPECT_THAT(Await<core::Parked>(), SizeIs(1)) << "and the core knows that the thread has never left the guard";
}

}  // namespace
}  // namespace kintsugi
