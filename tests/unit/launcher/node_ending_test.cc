// How a node's launcher comes to its end, who leads from here, and how the nodes of a run find each other.
#include "runtime/launcher/node/node_ending.h"

#include <filesystem>

#include "runtime/base/check.h"
#include "runtime/journal/text.h"
#include "tests/unit/launcher/whole_node.h"

namespace kintsugi {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// ---- the end of a node -----------------------------------------------------------------------------------------------

class EndOfANode : public WholeNode {
 protected:
  // A process of rank 2 that sleeps.
  void Start() {
    WorkerPoolOptions options = PoolOptionsOf(node->state.run(), 1);
    options.program = "/bin/sh";
    options.args = {"-c", "exec sleep 1000"};
    options.show_output = false;
    ASSERT_TRUE(node->pool.SetUp(std::move(options), *secret).ok());
    node->pool.Spawn(Rank(2), Incarnation(1));
    ASSERT_TRUE(node->pool.running());
  }
  const NodeResult& result() const { return *node->state.ended; }
};

TEST_F(EndOfANode, NamesWhatKeptItFromStarting) {
  Make();
  node->ending.Fail({StatusCode::kUnavailable, "port 7000 is taken"});
  AwaitEnd();
  EXPECT_EQ(node->state.failed.message(), "port 7000 is taken");
  EXPECT_EQ(result().exit_code, core::kExitStartup);
  EXPECT_THROW(node->ending.Fail(Status::Ok()), CheckFailure);
}

TEST_F(EndOfANode, ComesOnceAllThatIsHereHasLeft) {
  Make();
  node->ending.End({.exit_code = 0, .text = "all have finished"});
  EXPECT_FALSE(io.stopped()) << "what was said last is on its way";
  AwaitEnd();
  EXPECT_EQ(result().exit_code, 0);
  EXPECT_EQ(result().text, "all have finished");
}

TEST_F(EndOfANode, IsTheFirstThatItHears) {
  Make();
  node->ending.End({.exit_code = 75, .text = "saved", .asked = true});
  node->ending.End({.exit_code = 1, .text = "another"});
  node->ending.EndNow(1, "a second signal");
  AwaitEnd();
  EXPECT_EQ(result().exit_code, 75);
  EXPECT_EQ(result().text, "saved");
  EXPECT_TRUE(result().asked);
}

TEST_F(EndOfANode, WaitsForProcessesThatHaveMoreToDo) {
  Make();
  Start();
  node->ending.End({.exit_code = 0, .text = "all have finished"});
  io.restart();
  io.run_for(60ms);
  EXPECT_FALSE(io.stopped());
  EXPECT_TRUE(node->pool.running());
  node->pool.KillAll();
  AwaitEnd();
  EXPECT_FALSE(node->pool.running());
}

TEST_F(EndOfANode, AtOnceLeavesNoProcess) {
  Make();
  Start();
  node->ending.EndNow(1, "a second signal");
  EXPECT_TRUE(io.stopped());
  Run([&] { return !node->pool.running(); });
}

TEST_F(EndOfANode, IsBoundedByTheGracePeriodOfWhoAskedForIt) {
  NodeLauncherOptions options = Options(1);
  options.run.policy.grace = 20ms;
  Make(std::move(options));
  Start();
  node->ending.AskToStop();
  AwaitEnd();
  EXPECT_EQ(result().exit_code, core::kExitFailed);
  EXPECT_THAT(result().text, HasSubstr("the grace period was over"));
}

TEST_F(EndOfANode, ThatWasAskedForIsTheRunsWhereThatEndsInTime) {
  NodeLauncherOptions options = Options(1);
  options.run.policy.grace = 300ms;
  Make(std::move(options));
  node->ending.AskToStop();
  const auto asked = node->state.stop_asked;
  ASSERT_TRUE(asked);
  node->ending.AskToStop();
  EXPECT_EQ(node->state.stop_asked, asked) << "the grace period is one";
  node->ending.End({.exit_code = 75, .text = "saved", .asked = true});
  AwaitEnd();
  EXPECT_EQ(result().text, "saved");
}

TEST_F(EndOfANode, IsNotThereYetWhereAllLoopsAreOver) {
  SaidLeader leader(io, secret);
  Make();
  Follow(leader);
  node->ending.End({.text = "all have finished", .awaits_ends = true});
  EXPECT_TRUE(node->state.loops_over);
  EXPECT_FALSE(node->state.ended) << "the leader hears how the processes leave";
  Run([&] { return leader.All<wire::WorkerExited>().size() == 2; });
  node->ending.End({.exit_code = 1, .text = "rank 3 left with exit code 3"});
  AwaitEnd();
  EXPECT_EQ(result().exit_code, 1);
}

TEST_F(EndOfANode, SendsWhatIsQueuedBeforeItCloses) {
  SaidLeader leader(io, secret);
  Make();
  Follow(leader);
  leader.heard.clear();
  node->reporter.OnPage(Rank(2), Incarnation(1), {.beat = 9, .gate_word = 0, .progress = 0, .progress_at = {}});
  node->ending.End({.exit_code = 0, .text = "all have finished"});
  AwaitEnd();
  Run([&] { return leader.closed == 1; });
  EXPECT_THAT(leader.All<wire::Pages>(), SizeIs(1));
}

TEST_F(EndOfANode, IsWhatThoseMustWaitForWhoLeave) {
  Make();
  EXPECT_THROW(node->ending.OnDisconnected(), CheckFailure);
  EXPECT_THROW(node->ending.OnUnreachable(), CheckFailure);
  node->ending.OnLeft();
  EXPECT_FALSE(io.stopped()) << "the run goes on";
  node->ending.OnLeaderDone();
  EXPECT_TRUE(io.stopped()) << "the leader that was here knows how it ended";
}

// ---- who leads from here -----------------------------------------------------------------------------------------------

class LeaderHere : public WholeNode {
 protected:
  std::string Policy() {
    core::Policy policy;
    policy.world_size = 4;
    policy.grace = 1h;
    policy.save_directory = save_directory;
    return journal::WriteFields(policy);
  }
  // What the leader before this one has told.
  PartsOfANode& MakeTold() {
    PartsOfANode& made = Make(1);
    made.state.set_up = true;
    made.state.policy = Policy();
    made.state.run_id = "job/1";
    made.state.pulse.began = true;
    made.state.pulse.generation = Generation(4);
    return made;
  }
  TemporaryFolder folder;
  std::string save_directory;
};

TEST_F(LeaderHere, BeginsWhereTheFirstNodeIs) {
  NodeLauncherOptions options = Options(0);
  ASSERT_TRUE(Make(std::move(options)).elector.Listen().ok());
  node->local_leader.Found(nullptr);
  ASSERT_FALSE(node->state.ended) << node->state.ended->text;
  ASSERT_TRUE(node->local_leader.leads());
  EXPECT_EQ(node->local_leader.leader()->term(), (Term{1, 1}));
  ASSERT_TRUE(node->to_leader.leads());
  EXPECT_EQ(node->to_leader.leads()->controller.port, node->local_leader.leader()->port())
      << "it is followed from here";
  EXPECT_EQ(Logged("event=leads"), 1);
}

TEST_F(LeaderHere, TakesOverWithWhatTheOneBeforeToldIt) {
  ASSERT_TRUE(MakeTold().elector.Listen().ok());
  node->state.pulse.so_far.incidents = 3;
  node->history.OnTold(wire::KeepIncidents{.incidents = {{.id = 4, .record = "", .injection = ""}}});
  node->local_leader.TakeOver({.term = 7, .majority = true});
  ASSERT_TRUE(node->local_leader.leads()) << node->state.failed.ToString();
  EXPECT_EQ(node->local_leader.leader()->term(), (Term{7, 2}));
  EXPECT_EQ(node->to_leader.leads_term(), (Term{7, 2}));
  EXPECT_FALSE(node->to_leader.leads()->part);
}

TEST_F(LeaderHere, SavesAPartWhereNoMajorityElectedIt) {
  ASSERT_TRUE(MakeTold().elector.Listen().ok());
  node->local_leader.TakeOver({.term = 7, .majority = false});
  ASSERT_TRUE(node->local_leader.leads());
  EXPECT_TRUE(node->to_leader.leads()->part);
}

TEST_F(LeaderHere, DoesNotLeadByAPolicyThatItCannotRead) {
  MakeTold().state.policy = "no policy";
  node->local_leader.TakeOver({.term = 7, .majority = true});
  EXPECT_FALSE(node->local_leader.taken());
  ASSERT_TRUE(node->state.ended);
  EXPECT_THAT(node->state.failed.message(), HasSubstr("the policy that the leader gave"));
}

TEST_F(LeaderHere, GivesWayToANewerTermAlone) {
  ASSERT_TRUE(MakeTold().elector.Listen().ok());
  node->local_leader.TakeOver({.term = 7, .majority = true});
  ASSERT_TRUE(node->local_leader.leads());
  EXPECT_THROW(node->local_leader.StepDown(Term{6, 1}), CheckFailure);
  node->local_leader.StepDown(Term{8, 1});
  EXPECT_FALSE(node->local_leader.taken()) << "one that stepped down decides nothing";
  EXPECT_EQ(Logged("steps_down"), 1);
}

TEST_F(LeaderHere, DoesNotSaveWhereAnotherRunDoes) {
  const auto other = SaveLease::Take(folder / "saves", "another run", NullLogSink());
  ASSERT_TRUE(other.ok());
  NodeLauncherOptions options = Options(0);
  options.run.policy.save_directory = folder / "saves";
  ASSERT_TRUE(Make(std::move(options)).elector.Listen().ok());
  node->state.run_id = "job/1";
  node->local_leader.Found(nullptr);
  EXPECT_FALSE(node->local_leader.taken());
  EXPECT_THAT(node->state.failed.message(), HasSubstr("another run"));
}

TEST_F(LeaderHere, HandsTheSaveDirectoryOverToWhoeverLeadsNext) {
  save_directory = folder / "saves";
  const auto before = SaveLease::Take(save_directory, "job/1", NullLogSink());
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(MakeTold().elector.Listen().ok());
  node->local_leader.TakeOver({.term = 7, .majority = true});
  ASSERT_TRUE(node->local_leader.leads()) << node->state.failed.ToString();
  (*before)->HandOver();
  node->local_leader.Leave();
  EXPECT_FALSE(node->local_leader.taken());
  EXPECT_TRUE(std::filesystem::exists(save_directory + "/owner.json")) << "the run goes on";
  EXPECT_FALSE(SaveLease::Take(save_directory, "another run", NullLogSink()).ok());
}

// ---- how nodes meet ----------------------------------------------------------------------------------------------------

class Meeting : public WholeNode {
 protected:
  void SetUp() override {
    ElectionTransport::Handlers handlers;
    handlers.message = [this](const wire::NodeFrame& frame, const ElectionTransport::Reply&) {
      messages.push_back(frame.message);
    };
    handlers.order = [this](const wire::NodeOrderFrame& frame) { orders.push_back(frame.order); };
    handlers.refused = [this](int, const Status& why) { refused.push_back(why.message()); };
    ASSERT_TRUE(other.Listen("job", secret, nullptr, "127.0.0.1", 0, true, {}, handlers).ok());
  }
  // Node 0, which the others know.
  void Begin(Duration join_timeout = 1h) {
    NodeLauncherOptions options = Options(0);
    options.run.policy.join_timeout = join_timeout;
    ASSERT_TRUE(Make(std::move(options)).elector.Listen().ok());
    other.Know({0, "127.0.0.1", node->transport.port()});
    node->elector.BeginToSeek(SteadyClock::SteadyNow());
  }
  wire::NodeHello Hello() {
    wire::NodeHello hello;
    hello.node_rank = 1;
    hello.nodes = 2;
    hello.local_ranks = 2;
    hello.address = "127.0.0.1";
    hello.port = other.port();
    return hello;
  }
  void Say(const wire::NodeMessage& message) { other.Tell(0, wire::Encode("job", Term(), message)); }
  // What this hello is turned away with.
  std::string Refusal(const wire::NodeHello& hello) {
    orders.clear();
    Say(hello);
    Run([&] { return !orders.empty(); });
    const auto* welcome = std::get_if<wire::NodeWelcome>(&orders[0]);
    return welcome && !welcome->accepted ? welcome->text : "not refused";
  }

  std::vector<wire::NodeMessage> messages;
  std::vector<wire::NodeOrder> orders;
  std::vector<std::string> refused;
  ElectionTransport other{io, log};
};

TEST_F(Meeting, BeginsTheRunOnceEveryNodeHasAsked) {
  Begin();
  node->elector.Poll(SteadyClock::SteadyNow());
  EXPECT_FALSE(node->local_leader.taken()) << "node 1 is not there";
  Say(Hello());
  Run([&] {
    node->elector.Poll(SteadyClock::SteadyNow());
    return node->local_leader.taken();
  });
  EXPECT_TRUE(node->local_leader.leads());
  Say(Hello());
  const auto named = [](const wire::NodeOrder& order) { return std::holds_alternative<wire::Leads>(order); };
  Run([&] { return std::any_of(orders.begin(), orders.end(), named); });
  const auto leads = std::find_if(orders.begin(), orders.end(), named);
  EXPECT_EQ(std::get<wire::Leads>(*leads).controller.port, node->local_leader.leader()->port());
}

TEST_F(Meeting, TurnsAwayWhoIsOfAnotherShape) {
  Begin();
  wire::NodeHello hello = Hello();
  hello.local_ranks = 4;
  EXPECT_THAT(Refusal(hello), AllOf(HasSubstr("node 1 says --nproc 4"), HasSubstr("node 0 2")));
  hello = Hello();
  hello.controllers = 1;
  EXPECT_THAT(Refusal(hello), HasSubstr("name the same to all"));
  hello = Hello();
  hello.witness = true;
  EXPECT_THAT(Refusal(hello), HasSubstr("has --witness"));
  hello = Hello();
  hello.node_rank = 0;
  EXPECT_THAT(Refusal(hello), HasSubstr("--node-rank of its own"));
  EXPECT_EQ(Logged("node_refused"), 4);
  node->elector.Poll(SteadyClock::SteadyNow());
  EXPECT_FALSE(node->local_leader.taken()) << "none of them was counted";
  EXPECT_FALSE(node->state.ended);
}

TEST_F(Meeting, EndsWhereTwoMeanRunsOfAnotherSize) {
  Begin();
  wire::NodeHello hello = Hello();
  hello.nodes = 3;
  EXPECT_THAT(Refusal(hello), HasSubstr("--nnodes 3"));
  node->elector.Poll(SteadyClock::SteadyNow() + 1s);
  ASSERT_TRUE(node->state.ended) << "to wait for the others would be in vain";
  EXPECT_EQ(node->state.failed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(node->state.failed.message(), HasSubstr("give every node the same --nnodes"));
}

TEST_F(Meeting, NamesThoseThatDidNotCome) {
  Begin(60s);
  const TimePoint now = SteadyClock::SteadyNow();
  node->elector.Poll(now + 10s);
  EXPECT_EQ(Logged("waits_for_nodes"), 1) << "nobody is left to wonder";
  node->elector.Poll(now + 59s);
  EXPECT_FALSE(node->state.ended);
  node->elector.Poll(now + 61s);
  ASSERT_TRUE(node->state.ended);
  EXPECT_EQ(node->state.failed.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(node->state.failed.message(), AllOf(HasSubstr("node 1"), HasSubstr("60 s"), HasSubstr("--secret-file")));
}

TEST_F(Meeting, NamesThePlaceWhereNobodyLeads) {
  NodeLauncherOptions options = Options(1);
  options.rendezvous_port = 9;  // discard: nobody listens there
  options.run.policy.join_timeout = 60s;
  Make(std::move(options));
  node->transport.Know({0, "127.0.0.1", 9});
  node->elector.BeginToSeek(SteadyClock::SteadyNow());
  node->state.set_up = false;
  ASSERT_TRUE(node->elector.Listen().ok());
  node->elector.Poll(SteadyClock::SteadyNow() + 61s);
  ASSERT_TRUE(node->state.ended);
  EXPECT_THAT(node->state.failed.message(), AllOf(HasSubstr("node 1 found no controller"), HasSubstr("127.0.0.1:9")));
}

TEST_F(Meeting, GivesOneVoteATermOnceTheLeaderIsLost) {
  Begin();
  const auto vote = [&](uint64_t term) {
    messages.clear();
    Say(wire::VoteRequest{.node = 1, .term = term});
    Run([&] { return !messages.empty(); });
    return std::get<wire::Vote>(messages[0]);
  };
  node->state.set_up = true;
  node->state.election.Lose(SteadyClock::SteadyNow());
  const wire::Vote first = vote(5);
  EXPECT_TRUE(first.granted);
  EXPECT_EQ(first.node, 0);
  EXPECT_THAT(first.ended, ElementsAre(Rank(0), Rank(1))) << "its ranks count, and no process of them runs here";
  EXPECT_FALSE(vote(4).granted) << "promised to a newer one";
  EXPECT_EQ(Logged("event=vote"), 2);
}

TEST_F(Meeting, IsCutOffWhereTheLeaderIsLostBehindTheLoops) {
  SaidLeader leader(io, secret);
  NodeLauncherOptions options = Options(1);
  options.controller_wait = 10s;
  Make(std::move(options));
  Follow(leader);
  node->state.loops_over = true;
  const TimePoint now = SteadyClock::SteadyNow();
  node->to_leader.Drop("gone");
  node->elector.Poll(now + 9s);
  EXPECT_FALSE(node->state.ended);
  node->elector.Poll(now + 11s);
  ASSERT_TRUE(node->state.ended);
  EXPECT_EQ(node->state.ended->exit_code, core::kExitFailed) << "how the processes left is known to nobody";
  EXPECT_THAT(node->state.ended->text, HasSubstr("before it told how the processes left"));
}

TEST_F(Meeting, LeavesALeaderThatIsSilent) {
  SaidLeader leader(io, secret);
  NodeLauncherOptions options = Options(1);
  options.run.policy.silence = 1s;
  Make(std::move(options));
  Follow(leader);
  const TimePoint heard = node->to_leader.heard_at();
  node->elector.Poll(heard + 999ms);
  EXPECT_TRUE(node->to_leader.connected());
  node->elector.Poll(heard + 1001ms);
  EXPECT_FALSE(node->to_leader.connected());
  EXPECT_THAT(node->lost, HasSubstr("no sign of life for 1000 ms"));
  EXPECT_TRUE(node->state.election.leaderless());
  Run([&] { return leader.All<wire::NodeHello>().size() == 2; });  // it asks that one again
}

// ---- even splits -------------------------------------------------------------------------------------------------------

TEST_F(Meeting, GoesByTheLowestRankWithoutAWitness) {
  Make(1);
  EXPECT_EQ(node->splits.rule(), core::TieRule::kLowestRank);
  EXPECT_FALSE(node->splits.Take({5, core::TieRule::kNobody}).news);
  EXPECT_EQ(node->splits.rule(), core::TieRule::kLowestRank);
  EXPECT_EQ(node->splits.Poll(true, false), std::nullopt);
  EXPECT_THROW((void)node->splits.Poll(false, true), CheckFailure);
}

TEST_F(Meeting, TakesOrdersAboutAWitnessInTheirOrder) {
  NodeLauncherOptions options = Options(1);
  options.run.witness = {{"127.0.0.1", 9}};
  Make(std::move(options));
  EXPECT_EQ(node->splits.rule(), core::TieRule::kNobody) << "until the leader says otherwise";
  NodeSplits::Taken taken = node->splits.Take({2, core::TieRule::kWitness});
  EXPECT_TRUE(taken.news && taken.changed);
  taken = node->splits.Take({2, core::TieRule::kLowestRank});
  EXPECT_FALSE(taken.news) << "it is known";
  taken = node->splits.Take({1, core::TieRule::kLowestRank});
  EXPECT_FALSE(taken.news) << "an older one";
  EXPECT_EQ(node->splits.rule(), core::TieRule::kWitness);
  taken = node->splits.Take({3, core::TieRule::kWitness});
  EXPECT_TRUE(taken.news);
  EXPECT_FALSE(taken.changed);
  node->splits.OnFollowed();
  EXPECT_TRUE(node->splits.Take({1, core::TieRule::kNobody}).changed) << "another leader counts anew";
  EXPECT_EQ(node->splits.held_until(), TimePoint());
}

}  // namespace
}  // namespace kintsugi
