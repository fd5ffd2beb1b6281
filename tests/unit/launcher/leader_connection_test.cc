// A node and the leader that it follows: who is obeyed and who is not, what is told and when, what becomes of a connection
// that is lost.
#include "runtime/launcher/node/leader_connection.h"

#include "tests/unit/launcher/whole_node.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Following : public WholeNode {
 protected:
  template <typename Order>
  size_t Obeyed() const {
    return static_cast<size_t>(
        std::count_if(node->orders.begin(), node->orders.end(),
                      [](const wire::NodeOrder& order) { return std::holds_alternative<Order>(order); }));
  }
  std::unique_ptr<SaidLeader> leader = std::make_unique<SaidLeader>(io, secret);
};

TEST_F(Following, SaysWhoItIsAndObeysOnceItIsWelcome) {
  Make();
  EXPECT_FALSE(node->to_leader.Tell(wire::NodeStop{})) << "nobody is there";
  Follow(*leader);
  const auto hellos = leader->All<wire::NodeHello>();
  ASSERT_THAT(hellos, SizeIs(1));
  EXPECT_EQ(hellos[0].node_rank, 1);
  EXPECT_EQ(hellos[0].nodes, 2);
  EXPECT_EQ(hellos[0].local_ranks, 2);
  EXPECT_EQ(node->to_leader.term(), kTerm);
  EXPECT_EQ(node->new_terms, 1);
  leader->Tell(kTerm, wire::NodeNews{LogLevel::kInfo, "news"});
  Run([&] { return Obeyed<wire::NodeNews>() == 1; });
  EXPECT_EQ(node->new_terms, 1) << "the term is known";
  EXPECT_TRUE(node->to_leader.Tell(wire::NodeStop{}));
  Run([&] { return !leader->All<wire::NodeStop>().empty(); });
}

TEST_F(Following, ObeysNothingBeforeItIsWelcome) {
  Make();
  node->to_leader.Follow(kTerm, {{0, "127.0.0.1", leader->port()}, false, {}});
  Run([&] { return leader->has_node(); });
  leader->Tell(kTerm, wire::NodeEnd{});
  Run([&] { return leader->closed > 0; });
  EXPECT_THAT(node->orders, IsEmpty());
  EXPECT_FALSE(node->to_leader.connected());
}

TEST_F(Following, ObeysNoOlderTermThanItHas) {
  Make();
  Follow(*leader, Term{5, 1});
  leader->Tell(Term{4, 1}, wire::NodeEnd{});
  leader->Tell(Term{5, 1}, wire::NodeNews{LogLevel::kInfo, "news"});
  Run([&] { return Obeyed<wire::NodeNews>() == 1; });
  EXPECT_EQ(Obeyed<wire::NodeEnd>(), 0u);
  EXPECT_EQ(Logged("term 4 is over"), 1);
  leader->Tell(Term{6, 1}, wire::NodeNews{LogLevel::kInfo, "news"});
  Run([&] { return Obeyed<wire::NodeNews>() == 2; });
  EXPECT_EQ(node->new_terms, 2);
}

TEST_F(Following, EndsWhereItIsRefused) {
  Make();
  node->to_leader.Follow(kTerm, {{0, "127.0.0.1", leader->port()}, false, {}});
  Run([&] { return !leader->heard.empty(); });
  leader->Tell(kTerm, wire::NodeWelcome{.accepted = false, .text = "node 1 is here already"});
  Run([&] { return node->state.ended.has_value(); });
  EXPECT_THAT(node->state.failed.message(), HasSubstr("node 1 is here already"));
  EXPECT_EQ(node->state.ended->exit_code, core::kExitStartup);
  EXPECT_FALSE(node->to_leader.connected());
}

TEST_F(Following, ComesBackToALeaderThatItHasLost) {
  Make();
  Follow(*leader);
  const uint16_t port = leader->port();
  leader.reset();
  Run([&] { return !node->to_leader.connected(); });
  EXPECT_THAT(node->lost, HasSubstr("the controller was lost"));
  EXPECT_TRUE(node->state.election.leaderless());
  EXPECT_FALSE(node->to_leader.Tell(wire::NodeStop{}));
  leader = std::make_unique<SaidLeader>(io, secret, port);
  Run([&] { return !leader->All<wire::NodeHello>().empty(); });
  leader->Tell(kTerm, welcomed);
  Run([&] { return node->to_leader.connected(); });
  EXPECT_FALSE(node->state.ended);
}

TEST_F(Following, ElectsNobodyOnceAllLoopsAreOver) {
  Make();
  Follow(*leader);
  node->state.loops_over = true;
  leader.reset();
  Run([&] { return !node->to_leader.connected(); });
  EXPECT_FALSE(node->state.election.leaderless()) << "this leader hears how the processes leave, and nobody else";
}

TEST_F(Following, LeavesALeaderByItsOwnDecision) {
  Make();
  Follow(*leader);
  node->to_leader.Drop("no sign of life for 1000 ms");
  EXPECT_FALSE(node->to_leader.connected());
  EXPECT_THAT(node->lost, HasSubstr("no sign of life"));
  EXPECT_TRUE(node->state.election.leaderless());
}

TEST_F(Following, TurnsToTheNewOneThatIsNamed) {
  Make();
  Follow(*leader);
  SaidLeader next(io, secret);
  node->to_leader.Follow(Term{3, 2}, {{1, "127.0.0.1", next.port()}, false, {}});
  EXPECT_THAT(node->lost, HasSubstr("another one leads"));
  Run([&] { return !next.All<wire::NodeHello>().empty(); });
  EXPECT_EQ(node->to_leader.leads_term(), (Term{3, 2}));
  EXPECT_EQ(node->to_leader.leads()->controller.node, 1);
}

TEST_F(Following, EndsWithTheConnectionOnceTheRunHasEnded) {
  Make();
  Follow(*leader);
  node->state.ended = NodeResult{0, "all have finished", false, std::nullopt};
  leader.reset();
  AwaitEnd();
  EXPECT_THAT(node->lost, HasSubstr("the run has ended: all have finished"));
  EXPECT_EQ(node->state.ended->exit_code, 0);
}

TEST_F(Following, EndsWhereNothingHealsWhyItIsTurnedAway) {
  NodeLauncherOptions options = Options(1);
  options.run.secret = net::Secret::Generate().value();
  Make(std::move(options));
  node->to_leader.Follow(kTerm, {{0, "127.0.0.1", leader->port()}, false, {}});
  Run([&] { return node->state.ended.has_value(); });
  EXPECT_EQ(node->state.failed.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(node->state.failed.message(), HasSubstr("node 1 found no controller"));
}

TEST_F(Following, HoldsItsStateWhereALaterLeaderTurnsItAway) {
  NodeLauncherOptions options = Options(1);
  options.run.secret = net::Secret::Generate().value();
  Make(std::move(options));
  node->state.set_up = true;
  node->to_leader.Follow(kTerm, {{0, "127.0.0.1", leader->port()}, false, {}});
  Run([&] { return Logged("leader_refuses") == 1; });
  EXPECT_FALSE(node->state.ended) << "it is one that is lost";
  EXPECT_NE(node->to_leader.last_refusal(), "");
}

// ---- what a node tells -----------------------------------------------------------------------------------------------

TEST_F(Following, TellsWhereARankStoodBeforeItsEnd) {
  Make();
  Follow(*leader);
  leader->heard.clear();
  node->reporter.OnStarting(Rank(2), Incarnation(3), {"0 kill:2@5:forward"});
  node->reporter.OnPage(Rank(2), Incarnation(3), {.beat = 7, .gate_word = 11, .progress = 13, .progress_at = {}});
  EXPECT_THAT(leader->All<wire::Pages>(), IsEmpty()) << "pages are told together";
  WorkerEnd end{.cause = "killed by SIGKILL", .at = SteadyClock::SteadyNow(), .not_struck = {"kill:2@5:forward"}};
  node->reporter.OnExited(Rank(2), Incarnation(3), end);
  Run([&] { return leader->heard.size() == 3; });
  EXPECT_TRUE(std::holds_alternative<wire::WorkerStarting>(leader->heard[0]));
  ASSERT_TRUE(std::holds_alternative<wire::Pages>(leader->heard[1]));
  ASSERT_TRUE(std::holds_alternative<wire::WorkerExited>(leader->heard[2]));
  const wire::Page& page = std::get<wire::Pages>(leader->heard[1]).pages.at(0);
  EXPECT_EQ(page.beat, 7u);
  EXPECT_EQ(page.gate_word, 11u);
  const auto& exited = std::get<wire::WorkerExited>(leader->heard[2]);
  EXPECT_EQ(exited.cause, "killed by SIGKILL");
  EXPECT_FALSE(exited.left);
  EXPECT_THAT(exited.not_struck, ElementsAre("kill:2@5:forward"));
}

TEST_F(Following, TellsALeaderAgainHowItsProcessesEnded) {
  Make();
  node->reporter.OnStarting(Rank(2), Incarnation(1), {});
  node->reporter.OnExited(Rank(2), Incarnation(1),
                          {.cause = "exited with code 0", .at = SteadyClock::SteadyNow(), .code = 0});
  Follow(*leader);
  leader->heard.clear();
  node->reporter.TellEnds();
  Run([&] { return leader->All<wire::WorkerExited>().size() == 2; });
  const auto ends = leader->All<wire::WorkerExited>();
  EXPECT_EQ(ends[0].rank, Rank(2));
  EXPECT_TRUE(ends[0].left);
  EXPECT_EQ(ends[0].code, 0);
  EXPECT_EQ(ends[1].rank, Rank(3));
  EXPECT_THAT(ends[1].cause, HasSubstr("the launcher before this one")) << "nobody here started it";
  EXPECT_FALSE(ends[1].left);
}

TEST_F(Following, TellsEveryLeaderTheReportsThatAreNotInTheSums) {
  Make();
  for (uint64_t step = 1; step <= 3; ++step) node->reporter.OnReport(Rank(2), {step, 0.5, {}});
  Follow(*leader);
  node->reporter.RetellReports(2);
  Run([&] { return leader->All<wire::WorkerReport>().size() == 2; });
  node->reporter.RetellReports(200);
  Run([&] { return leader->All<wire::WorkerReport>().size() == 3; });
  wire::KeepTotals sums;
  sums.totals.step = 2;
  node->retained.OnTotals(sums);
  leader->heard.clear();
  leader->Tell(Term{3, 1}, wire::NodeNews{});
  Run([&] { return node->new_terms == 2; });
  node->reporter.RetellReports(200);
  Run([&] { return !leader->All<wire::WorkerReport>().empty(); });
  EXPECT_EQ(leader->All<wire::WorkerReport>()[0].step, 3u);
}

TEST_F(Following, SaysEveryBeatThatItIsHere) {
  Make();
  Follow(*leader);
  node->reporter.SetBeat(100ms);
  const TimePoint now = SteadyClock::SteadyNow();
  leader->heard.clear();
  node->reporter.Poll(now);
  node->reporter.Poll(now + 50ms);
  node->reporter.Poll(now + 100ms);
  node->to_leader.Tell(wire::NodeStop{});
  Run([&] { return !leader->All<wire::NodeStop>().empty(); });
  EXPECT_THAT(leader->All<wire::Pages>(), SizeIs(2)) << "also with nothing to tell";
}

// ---- what operators ask of a node --------------------------------------------------------------------------------------

class OperatorsOfANode : public Following {
 protected:
  void Ask(const std::string& request) {
    node->control.OnRequest(request, [this](std::string answer) { answers.push_back(std::move(answer)); });
  }
  std::vector<std::string> answers;
};

TEST_F(OperatorsOfANode, AreToldThatNobodyLeads) {
  Make();
  Ask(R"({"command": "status"})");
  EXPECT_THAT(answers, ElementsAre(HasSubstr("nobody leads the run now: ask again")));
  answers.clear();
  Ask("no JSON");
  EXPECT_THAT(answers, ElementsAre(HasSubstr(R"("ok":false)")));
  answers.clear();
  Ask(R"({"command": "stop"})");
  EXPECT_EQ(node->asked_to_stop, 1) << "this node knows, whoever leads next";
  EXPECT_THAT(answers, ElementsAre(HasSubstr("the next leader is told")));
}

TEST_F(OperatorsOfANode, ArmFaultsOfItsOwnRanksHere) {
  Make();
  Follow(*leader);
  Ask(R"({"command": "inject", "spec": "kill:3@5"})");
  EXPECT_THAT(answers, ElementsAre(::testing::AllOf(HasSubstr(R"("ok":true)"), HasSubstr("kill:3@5"))));
  Run([&] { return !leader->All<wire::NodeInject>().empty(); });
  EXPECT_EQ(leader->All<wire::NodeInject>()[0].rank, Rank(3));
  EXPECT_THAT(leader->All<wire::NodeAsks>(), IsEmpty());
  answers.clear();
  Ask(R"({"command": "inject", "spec": "kill:0@5"})");
  Run([&] { return !leader->All<wire::NodeAsks>().empty(); });
  EXPECT_THAT(answers, IsEmpty()) << "the leader knows whose it is";
}

TEST_F(OperatorsOfANode, HearWhatTheLeaderAnswersOnce) {
  Make();
  Follow(*leader);
  Ask(R"({"command": "status"})");
  Run([&] { return !leader->All<wire::NodeAsks>().empty(); });
  const wire::NodeAsks asked = leader->All<wire::NodeAsks>()[0];
  EXPECT_THAT(asked.request, HasSubstr("status"));
  node->control.OnAnswered({asked.id, "the answer"});
  node->control.OnAnswered({asked.id, "once more"});
  EXPECT_THAT(answers, ElementsAre("the answer"));
}

TEST_F(OperatorsOfANode, AreToldWhereTheLeaderIsLostMeanwhile) {
  Make();
  Follow(*leader);
  Ask(R"({"command": "save"})");
  leader.reset();
  Run([&] { return !answers.empty(); });
  EXPECT_THAT(answers, ElementsAre(HasSubstr("the controller was lost")));
}

TEST_F(OperatorsOfANode, AreAnsweredHereWhereThisNodeLeads) {
  Make();
  node->answers_as_leader = "as the leader";
  Ask(R"({"command": "status"})");
  EXPECT_THAT(answers, ElementsAre("as the leader"));
}

TEST_F(OperatorsOfANode, OfAnotherNodeGetHereWhatIsItsOwnAlone) {
  Make();
  Follow(*leader);
  for (const char* request : {R"({"command": "inject", "spec": "kill:0@5"})", R"({"command": "stop"})", "no JSON"})
    node->control.OnAsked({9, request});
  node->control.OnAsked({10, R"({"command": "inject", "spec": "kill:2@5"})"});
  Run([&] { return leader->All<wire::NodeAnswers>().size() == 4; });
  const auto told = leader->All<wire::NodeAnswers>();
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(told[i].answer, HasSubstr("node 1 was asked for what is not its own"));
  EXPECT_EQ(told[3].id, 10u);
  EXPECT_THAT(told[3].answer, HasSubstr(R"("ok":true)"));
  EXPECT_EQ(node->asked_to_stop, 0) << "nothing goes round in a circle";
}

}  // namespace
}  // namespace kintsugi
