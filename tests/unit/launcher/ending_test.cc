// How a run ends, and how operators are answered meanwhile, over hosts that do what the test says. The controller is the
// real one; it does not listen.
#include "runtime/launcher/leader/ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Silent final : LogSink {
  void Write(LogLevel, std::string_view) override {}
};

class Ends : public ::testing::Test, private ControllerHost, private Hosts {
 protected:
  static LauncherOptions Options() {
    LauncherOptions options;
    options.job = "job";
    options.policy.world_size = 2;
    options.policy.grace = 10s;
    options.policy.save_directory = "/saves";
    return options;
  }
  void Begin() {
    account.Start();
    controller.Start();
    for (int32_t rank = 0; rank < 2; ++rank) account.OnStarting(Rank(rank), Incarnation(1), now);
  }
  void Exit(int32_t rank, std::optional<int> code) {
    WorkerEnd end;
    end.at = now;
    end.cause = code ? "left with exit code " + std::to_string(*code) : "was killed by signal 9";
    end.code = code;
    account.OnExited(Rank(rank), end);
    ending.OnLeft();
  }
  // What is due is done; what is due later is not waited for.
  void Turn(Duration limit = 0ms) {
    io.restart();
    limit == Duration() ? io.poll() : io.run_for(limit);
  }
  OperatorRequests::Respond Into(std::vector<std::string>* answers) {
    return [answers](std::string answer) { answers->push_back(std::move(answer)); };
  }
  bool Ask(const std::string& request, OperatorRequests::RunState run = {}) {
    return operators.OnRequest(ReadControlWords(request).value(), run, Into(&answers));
  }

  Hosts& Here() { return *this; }

  // ControllerHost and Hosts: nobody is started, all is counted.
  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition&) override {}
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded& ended) override { ending.End(ended); }
  bool AllHere() const override { return true; }
  void Inject(const Injection&, const std::string&, Respond) override {}
  Result<core::RankBlock> RanksOfNode(int) const override { return core::RankBlock{}; }
  void Say(LogLevel, const std::string&) override {}
  void Leave(const wire::NodeEnd& end) override { leaves.push_back(end.awaits_ends ? "await" : "leave"); }
  void EndNow() override { ++ended_at_once; }
  bool left() const override { return nobody_left; }
  void LookAt(RunStatus*) const override {}

  const TimePoint now = SteadyClock::SteadyNow();
  const LauncherOptions options = Options();
  boost::asio::io_context io;
  std::shared_ptr<Silent> log = std::make_shared<Silent>();
  bool nobody_left = false;
  int ended_at_once = 0, done = 0;
  std::vector<std::string> leaves, answers;
  RunAccount account{options.policy, Generation(), now};
  Controller controller{io, {.policy = options.policy, .job = "job"}, net::Secret::Generate().value(), *this, log};
  OperatorRequests operators{controller, "/saves"};
  Ending ending{io, options, controller, account, operators, *this, log, [this] { ++done; }};
};

const core::RunEnded kWell{core::kExitSuccess, "all ranks have finished", Step(7), 99};

TEST_F(Ends, WellOnceAllHaveLeftByThemselves) {
  Begin();
  ending.End(kWell);
  EXPECT_THAT(leaves, ElementsAre("await")) << "a process may have more to do";
  Exit(0, 0);
  EXPECT_EQ(leaves.size(), 1u) << "the other one may still write the model out";
  ending.Poll(now + 1h);
  EXPECT_FALSE(account.stop_asked()) << "and may take as long as it does";
  Exit(1, 0);
  EXPECT_THAT(leaves, ElementsAre("await", "leave"));
  EXPECT_EQ(account.result().exit_code, core::kExitSuccess);
  EXPECT_EQ(done, 0) << "a node has not left";
  nobody_left = true;
  ending.OnLeft();
  Turn(1s);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(ended_at_once, 0);
}

TEST_F(Ends, BadlyWhereAProcessFailsBehindItsLoop) {
  Begin();
  ending.End(kWell);
  Exit(0, 3);
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  EXPECT_THAT(account.result().text, AllOf(HasSubstr("rank 0"), HasSubstr("exit code 3")));
  ending.Poll(now);
  ending.Poll(now + 9s);
  EXPECT_THAT(leaves, ElementsAre("await")) << "the other may be writing the only copy";
  ending.Poll(now + 10s);
  EXPECT_THAT(leaves, ElementsAre("await", "leave")) << "it had the grace period";
  EXPECT_THAT(account.result().text, HasSubstr("exit code 3")) << "the first reason stays";
}

TEST_F(Ends, WithTheProcessesThatDidNotLeaveNamed) {
  Begin();
  ending.End(kWell);
  Exit(1, 0);
  account.AskStop(now);
  ending.Poll(now + 9s);
  EXPECT_THAT(leaves, ElementsAre("await"));
  ending.Poll(now + 10s);
  EXPECT_THAT(account.result().text, AllOf(HasSubstr("rank 0 had not left"), HasSubstr("10000 ms")));
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
}

TEST_F(Ends, BeforeTheSideThatAskedKillsIt) {
  Begin();
  account.AskStop(now);  // and the controller waits for something that does not come
  ending.Poll(now + 8999ms);
  EXPECT_FALSE(account.ended());
  ending.Poll(now + 9s);
  ASSERT_TRUE(account.ended());
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  EXPECT_THAT(account.result().text,
              AllOf(HasSubstr("before anything was saved"), HasSubstr("there is no checkpoint")));
}

TEST_F(Ends, ResumablyWhereACheckpointIsThere) {
  Begin();
  account.OnCheckpoint({Step(4), "/saves/step-4"}, now);
  account.AskStop(now);
  ending.Poll(now + 9s);
  EXPECT_EQ(account.result().exit_code, core::kExitResumable);
  EXPECT_THAT(account.result().text, HasSubstr("resume from /saves/step-4 (step 4)"));
  EXPECT_EQ(account.result().committed, Step(4));
}

TEST_F(Ends, Once) {
  Begin();
  ending.End({core::kExitFailed, "the first reason", Step(), std::nullopt});
  ending.End({core::kExitResumable, "the second", Step(), std::nullopt});
  EXPECT_EQ(account.result().text, "the first reason");
  EXPECT_THAT(leaves, ElementsAre("leave")) << "who failed is not waited for";
}

TEST_F(Ends, AtOnceWhateverIsLeft) {
  Begin();
  ASSERT_TRUE(Ask(R"({"command": "save"})"));
  EXPECT_THAT(answers, IsEmpty());
  ending.EndNow("a second signal");
  EXPECT_EQ(done, 1);
  EXPECT_EQ(ended_at_once, 1);
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  ASSERT_EQ(answers.size(), 1u) << "who waited is told once";
  EXPECT_THAT(answers[0], AllOf(HasSubstr(R"("ok":false)"), HasSubstr("a second signal")));
}

TEST_F(Ends, BadlyAtOnceWhileProcessesOfARunThatWentWellAreAwaited) {
  Begin();
  ending.End(kWell);
  ending.EndNow("a second signal");
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  EXPECT_THAT(account.result().text, AllOf(HasSubstr("a second signal"), HasSubstr("ranks 0, 1 had not left")));
}

TEST_F(Ends, BeforeItHasBegun) {
  ending.NeverBegin("node 1 did not come");
  EXPECT_EQ(account.result().exit_code, core::kExitStartup);
  EXPECT_EQ(done, 1);
  ending.NeverBegin("and another reason");
  EXPECT_EQ(done, 1);
}

TEST_F(Ends, NotByATimerOfAnEndingThatIsGone) {
  Begin();
  const auto count = [this] { done += 100; };
  std::optional<Ending> gone(std::in_place, io, options, controller, account, operators, Here(), log, count);
  nobody_left = true;
  gone->End({core::kExitFailed, "why", Step(), std::nullopt});
  gone.reset();
  Turn(100ms);
  EXPECT_EQ(done, 0);
}

TEST_F(Ends, AndOperatorsAreToldWhatCannotBe) {
  const auto answer = [&](const std::string& request, OperatorRequests::RunState run = {}) {
    answers.clear();
    EXPECT_TRUE(Ask(request, run)) << request;
    return answers.size() == 1 ? answers[0] : std::to_string(answers.size()) + " answers";
  };
  EXPECT_FALSE(Ask(R"({"command": "status"})")) << "another's";
  EXPECT_THAT(answer(R"({"command": "replace"})"), HasSubstr("needs a"));
  EXPECT_THAT(answer(R"({"command": "scale"})"), HasSubstr("needs"));
  EXPECT_THAT(answer(R"({"command": "continue"})"), HasSubstr("not paused"));
  EXPECT_THAT(answer(R"({"command": "pause"})", {.leaves = true}), HasSubstr("saves and leaves"));
  for (const char* command : {"save", "pause", "continue"})
    EXPECT_THAT(answer(std::string(R"({"command": ")") + command + R"("})", {.ended = true}), HasSubstr("has ended"));
  EXPECT_THAT(answer(R"({"command": "replace", "rank": 9})"), HasSubstr(R"("ok":false)"));
  OperatorRequests nowhere(controller, "");
  answers.clear();
  EXPECT_TRUE(nowhere.OnRequest(ReadControlWords(R"({"command": "save"})").value(), {}, Into(&answers)));
  EXPECT_THAT(answers, ElementsAre(HasSubstr("--save-dir")));
}

TEST_F(Ends, AndNoMoreThanEightWaitForASave) {
  Begin();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(Ask(R"({"command": "save"})"));
  EXPECT_THAT(answers, ElementsAre(HasSubstr("--no-wait")));
  answers.clear();
  ASSERT_TRUE(Ask(R"({"command": "save", "wait": false})"));
  EXPECT_THAT(answers, ElementsAre(HasSubstr("/saves"))) << "who does not wait finds room";
  answers.clear();
  operators.OnSave({.step = Step(3), .saved = true, .rank = Rank(0), .text = "one file was left out"});
  ASSERT_EQ(answers.size(), 8u);
  EXPECT_THAT(answers[0], AllOf(HasSubstr(R"("step":3)"), HasSubstr("one file was left out")));
  answers.clear();
  ASSERT_TRUE(Ask(R"({"command": "save"})"));
  operators.OnSave({.step = Step(5), .saved = false, .rank = Rank(0), .text = "no space left"});
  EXPECT_THAT(answers, ElementsAre(AllOf(HasSubstr("no space left"), HasSubstr(R"("exit":1)"))));
}

TEST_F(Ends, AndWhoWaitsForAPauseIsToldThatOthersEndedIt) {
  Begin();
  ASSERT_TRUE(Ask(R"({"command": "pause"})"));
  EXPECT_TRUE(operators.awaits_pause());
  operators.Poll();
  EXPECT_THAT(answers, IsEmpty()) << "the ranks do not stand yet";
  ASSERT_TRUE(Ask(R"({"command": "continue"})"));
  operators.Poll();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[0], HasSubstr(R"("ok":true)")) << "who let it go on";
  EXPECT_THAT(answers[1], HasSubstr("somebody let the run go on"));
  EXPECT_FALSE(operators.awaits_pause());
}

}  // namespace
}  // namespace kintsugi
