// The leader's side of several nodes, without a socket: what nodes are told, what is made of what they tell, and what
// becomes of those that stay away. The controller is the real one; it does not listen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/launcher/leader/node_inbox.h"
#include "runtime/launcher/leader/worker_event_handler.h"
#include "runtime/launcher/run/run_history.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Life = core::ControllerCore::Life;

constexpr Duration kBeat = 100ms;
constexpr int kSpare = 2;

struct Silent final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

struct Told {
  int node = 0;
  wire::NodeOrder order;
};

// Two nodes of two ranks.
class Nodes : public ::testing::Test, private NodeOrders, private ControllerHost, private HostEvents {
 protected:
  void SetUp() override { began = SteadyClock::SteadyNow(); }

  void Come(int node, wire::NodeHello hello = {}) {
    hello.address = "10.0.0." + std::to_string(node);
    hello.port = static_cast<uint16_t>(7000 + node);
    inbox.OnNodeJoined(node, hello);
  }
  // Both nodes are here, the controller has begun, and nobody remembers what was told meanwhile.
  void Begin() {
    Come(0);
    Come(1);
    account.Start();
    broadcast.TellPlaces();
    controller.Start();
    told.clear();
    log->lines.clear();
  }
  // All that were told something of this kind, in order.
  template <typename Order>
  std::vector<std::pair<int, Order>> All() const {
    std::vector<std::pair<int, Order>> all;
    for (const Told& one : told)
      if (const auto* order = std::get_if<Order>(&one.order)) all.emplace_back(one.node, *order);
    return all;
  }
  template <typename Order>
  std::vector<int> Whom() const {
    std::vector<int> whom;
    for (const auto& [node, order] : All<Order>()) whom.push_back(node);
    return whom;
  }
  int LinesWith(const std::string& text) const {
    return static_cast<int>(std::count_if(log->lines.begin(), log->lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    }));
  }
  const core::ControllerCore::Member& Member(int rank) const {
    return controller.core().members()[static_cast<size_t>(rank)];
  }

  bool Send(int node, const wire::NodeOrder& order) override {
    if (!registry.At(node).here) return false;
    told.push_back({node, order});
    return true;
  }
  void SetPlacement(core::Placement) override {}
  void Spawn(Rank rank, Incarnation incarnation) override {
    const int node = registry.NodeOf(rank);
    if (!Send(node, wire::SpawnWorker{rank, incarnation})) registry.At(node).to_spawn[rank] = incarnation;
  }
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition&) override {}
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded& ended) override { account.End(ended); }
  void OnCame() override { ++came; }
  void OnLeft() override { ++left; }
  void OnGone(core::RankBlock ranks, const std::string& why) override {
    gone.push_back(std::to_string(ranks.first.value()) + "+" + std::to_string(ranks.ranks) + ": " + why);
  }
  void OnNobodyCame(const std::string& why) override { nobody_came = why; }
  void Stop() override { ++stops; }
  void OnRequest(const std::string& request, std::function<void(std::string)> respond) override {
    respond("answer to " + request);
  }

  static core::Policy PolicyOfFour() {
    core::Policy policy;
    policy.world_size = 4;
    return policy;
  }

  TimePoint began;
  std::vector<Told> told;
  int came = 0, left = 0, stops = 0;
  std::string nobody_came;
  std::vector<std::string> gone;
  boost::asio::io_context io;
  std::shared_ptr<Silent> log = std::make_shared<Silent>();
  RunAccount account{PolicyOfFour(), Generation(), SteadyClock::SteadyNow()};
  Controller controller{io, {.policy = PolicyOfFour(), .job = "job"}, net::Secret::Generate().value(), *this, log};
  EvenSplits splits{controller, account, core::TieRule::kLowestRank, std::nullopt};
  WorkerEventHandler workers{controller, account, *this};
  NodeRegistry registry{{2, 0, 2}, {}, SteadyClock::SteadyNow()};
  NodeBroadcast broadcast{registry, *this, account, splits, kBeat, log};
  NodeAbsence absence{{60s, 30s, 5s}, 1, controller, account, {registry, *this, splits, broadcast}, *this};
  ForwardedRequests forwarded;
  NodeInbox inbox{
      "job", {{registry, *this, splits, broadcast}, absence, forwarded}, controller, account, workers, *this, log};
};

TEST_F(Nodes, AreToldWhereTheOthersAreAndThoseWhatIsNew) {
  Begin();
  Come(kSpare);
  ASSERT_THAT(Whom<wire::NodePlaces>(), ElementsAre(0, 1, kSpare)) << "one that comes alone is told of at once";
  EXPECT_EQ(All<wire::NodePlaces>()[0].second.places.size(), 1u);
  EXPECT_EQ(All<wire::NodePlaces>()[2].second.places.size(), 3u);
  told.clear();
  Come(kSpare + 1);
  Come(kSpare + 2);
  EXPECT_THAT(Whom<wire::NodePlaces>(), IsEmpty()) << "the next ones together";
  broadcast.Poll({}, began);
  ASSERT_THAT(Whom<wire::NodePlaces>(), ElementsAre(0, 1, kSpare, kSpare + 1, kSpare + 2));
  EXPECT_EQ(All<wire::NodePlaces>()[0].second.places.size(), 2u);
}

TEST_F(Nodes, HearOfTheLeaderWhenTheyTellAndWhenTheyDoNot) {
  Begin();
  const TimePoint now = began + 10s;
  broadcast.OnPages(0, now);
  EXPECT_THAT(Whom<wire::NodePulse>(), ElementsAre(0));
  broadcast.OnPages(0, now + kBeat / 4);
  EXPECT_THAT(Whom<wire::NodePulse>(), ElementsAre(0)) << "it was told a moment ago";
  broadcast.Poll({}, now + kBeat / 4);
  EXPECT_THAT(Whom<wire::NodePulse>(), ElementsAre(0, 1)) << "the other has nothing to tell";
  broadcast.PulseAll(now + kBeat / 2);
  EXPECT_THAT(Whom<wire::NodePulse>(), ElementsAre(0, 1, 0, 1));
}

TEST_F(Nodes, KeepReportsUntilTheyAreInTheSums) {
  Begin();
  core::LedgerTotals folded;
  folded.step = 10;
  folded.curve = {1, 2, 3};
  broadcast.Poll(folded, began + 10s);
  ASSERT_THAT(Whom<wire::KeepTotals>(), ElementsAre(0, 1));
  EXPECT_EQ(All<wire::KeepTotals>()[0].second.curve_from, 0u);
  told.clear();
  Come(kSpare);
  folded.step = 20;
  folded.curve.push_back(4);
  broadcast.Poll(folded, began + 12s);
  ASSERT_THAT(Whom<wire::KeepTotals>(), ElementsAre(0, 1, kSpare));
  EXPECT_EQ(All<wire::KeepTotals>()[0].second.curve_from, 3u);
  EXPECT_THAT(All<wire::KeepTotals>()[0].second.totals.curve, ElementsAre(4));
  EXPECT_EQ(All<wire::KeepTotals>()[2].second.curve_from, 0u) << "one that has just come is told all";
  told.clear();
  folded.step = 30;
  folded.curve_every = 2;
  folded.curve = {1, 3};
  broadcast.Poll(folded, began + 14s);
  EXPECT_EQ(All<wire::KeepTotals>()[0].second.curve_from, 0u) << "it was thinned out: what they have does not fit";
}

TEST_F(Nodes, KeepIncidentsForALeaderToCome) {
  Begin();
  broadcast.Poll({}, began + 1s);
  told.clear();
  core::IncidentRecord record;
  record.id = 1;
  record.fault_at = record.detected_at = began;
  account.OnIncident(record, began + 1s);
  broadcast.Poll({}, began + 10s);
  ASSERT_THAT(Whom<wire::KeepIncidents>(), ElementsAre(0, 1));
  ASSERT_EQ(All<wire::KeepIncidents>()[0].second.incidents.size(), 1u);
  EXPECT_FALSE(All<wire::KeepIncidents>()[0].second.all);
  EXPECT_TRUE(std::holds_alternative<wire::KeepIncidents>(told[0].order)) << "before the pulse that counts it";
  told.clear();
  broadcast.Poll({}, began + 20s);
  EXPECT_THAT(Whom<wire::KeepIncidents>(), IsEmpty()) << "nothing is new";
  Come(kSpare);
  record.id = 2;
  account.OnIncident(record, began + 21s);
  broadcast.Poll({}, began + 30s);
  ASSERT_THAT(Whom<wire::KeepIncidents>(), ElementsAre(0, 1, kSpare));
  EXPECT_EQ(All<wire::KeepIncidents>()[0].second.incidents.size(), 1u);
  EXPECT_EQ(All<wire::KeepIncidents>()[2].second.incidents.size(), 2u) << "one that has just come is told all";

  RunHistory history;
  history.OnTold({{{7, "", ""}}, false});
  for (const auto& [node, order] : All<wire::KeepIncidents>())
    if (node == kSpare) history.OnTold(order);
  ASSERT_EQ(history.All().incidents.size(), 2u) << "what another leader told is void";
  EXPECT_EQ(history.All().incidents[1].id, 2u);
  for (uint64_t id = 3; id < 400; ++id) history.OnTold({{{id, "", ""}}, false});
  EXPECT_EQ(history.All().incidents.size(), wire::KeepIncidents::kMax);
  EXPECT_EQ(history.All().incidents.back().id, 399u);
}

// Before the pulse that names who takes part: nobody is to lead a world of which it does not know how it came about.
TEST_F(Nodes, AreToldOfAnotherWorldBeforeItsCrew) {
  Begin();
  broadcast.Poll({}, began + 1s);
  told.clear();
  account.OnCrew(core::Crew(4).Without({Rank(2), Rank(3)}), 1, Step(7), began + 1100ms);
  broadcast.PulseAll(began + 1100ms);
  ASSERT_THAT(Whom<wire::KeepSpans>(), ElementsAre(0, 1));
  for (const int node : {0, 1}) {
    const auto of = [&](size_t kind) {
      return std::find_if(told.begin(), told.end(),
                          [&](const Told& one) { return one.node == node && one.order.index() == kind; });
    };
    const auto spans = of(wire::NodeOrder(wire::KeepSpans{}).index()),
               pulse = of(wire::NodeOrder(wire::NodePulse{}).index());
    ASSERT_TRUE(spans != told.end() && pulse != told.end());
    EXPECT_LT(spans, pulse);
    EXPECT_EQ(std::get<wire::NodePulse>(pulse->order).so_far.crew, (std::vector<Rank>{Rank(0), Rank(1)}));
    const auto& worlds = std::get<wire::KeepSpans>(spans->order).worlds;
    ASSERT_EQ(worlds.size(), 1u);
    EXPECT_EQ(worlds[0].step, Step(7));
    EXPECT_THAT(worlds[0].left, ElementsAre(Rank(2), Rank(3)));
  }
  told.clear();
  broadcast.Poll({}, began + 1200ms);
  EXPECT_THAT(Whom<wire::KeepSpans>(), IsEmpty()) << "once";
  Come(kSpare);
  broadcast.Poll({}, began + 1300ms);
  ASSERT_THAT(Whom<wire::KeepSpans>(), ElementsAre(kSpare)) << "one that has just come is told all";
  RunHistory history;
  history.OnTold(All<wire::KeepSpans>()[0].second);
  EXPECT_EQ(history.All().worlds.size(), 1u);
  for (int i = 0; i < 400; ++i) history.OnTold(wire::KeepSpans{.worlds = {{.ranks = i}}});
  EXPECT_EQ(history.All().worlds.size(), wire::KeepSpans::kWorldsMax);
  EXPECT_EQ(history.All().worlds.back().ranks, 399);
}

TEST_F(Nodes, KeepSpansForALeaderToCome) {
  Begin();
  broadcast.Poll({}, began + 1s);
  told.clear();
  account.OnStarting(Rank(0), Incarnation(1), began + 1s);
  broadcast.Poll({}, began + 1100ms);
  ASSERT_THAT(Whom<wire::KeepSpans>(), ElementsAre(0, 1)) << "processes at once";
  EXPECT_EQ(All<wire::KeepSpans>()[0].second.lives.size(), 1u);
  const auto at_step = [&](uint64_t step) {
    account.OnPage(Rank(0), {1, 0, PackProgress(step, TrainPhase::kForward), began + 1s * step});
  };
  for (uint64_t step = 1; step <= 4; ++step) at_step(step);
  told.clear();
  broadcast.Poll({}, began + 1200ms);
  EXPECT_THAT(Whom<wire::KeepSpans>(), IsEmpty()) << "steps together";
  broadcast.Poll({}, began + 3s);
  ASSERT_THAT(Whom<wire::KeepSpans>(), ElementsAre(0, 1));
  EXPECT_EQ(All<wire::KeepSpans>()[0].second.steps.size(), 3u);
  told.clear();
  at_step(5);
  account.OnExited(Rank(0), {.cause = "killed by SIGKILL", .at = began + 4s});
  Come(kSpare);
  broadcast.Poll({}, began + 3100ms);
  ASSERT_THAT(Whom<wire::KeepSpans>(), ElementsAre(0, 1, kSpare));
  EXPECT_EQ(All<wire::KeepSpans>()[0].second.steps.size(), 1u);
  EXPECT_FALSE(All<wire::KeepSpans>()[0].second.all);
  EXPECT_EQ(All<wire::KeepSpans>()[2].second.steps.size(), 4u) << "one that has just come is told all";
  ASSERT_EQ(All<wire::KeepSpans>()[2].second.lives.size(), 1u);
  EXPECT_TRUE(All<wire::KeepSpans>()[2].second.lives[0].over);

  RunHistory history;
  history.OnTold(wire::KeepSpans{.lives = {{Rank(7), Incarnation(1)}}, .steps = {{Rank(7), Step(1)}}});
  history.OnTold(All<wire::KeepSpans>()[2].second);
  EXPECT_EQ(history.All().lives.size(), 1u) << "what another leader told is void";
  EXPECT_EQ(history.All().steps.size(), 4u);
  for (uint64_t step = 1; step < 9000; ++step) history.OnTold(wire::KeepSpans{.steps = {{Rank(1), Step(step)}}});
  EXPECT_EQ(history.All().steps.size(), wire::KeepSpans::kStepsMax);
  EXPECT_EQ(history.All().steps.back().step, Step(8999));
}

TEST_F(Nodes, ThatDoNotComeKeepTheRunFromBeginning) {
  Come(0);
  EXPECT_EQ(came, 1);
  absence.Check(began + 59s);
  EXPECT_EQ(nobody_came, "");
  absence.Check(SteadyClock::SteadyNow() + 60s);
  EXPECT_EQ(nobody_came, "node 1 did not come within 60 s");
}

TEST_F(Nodes, WhatIsWantedOfOneThatIsAwayWaitsForIt) {
  Come(0);
  account.Start();
  controller.Start();
  EXPECT_EQ(registry.At(1).to_spawn.size(), 2u);
  told.clear();
  Come(1);
  const auto spawned = All<wire::SpawnWorker>();
  ASSERT_EQ(spawned.size(), 2u);
  EXPECT_EQ(spawned[0].second.rank, Rank(2));
  EXPECT_THAT(registry.At(1).to_spawn, IsEmpty());
}

TEST_F(Nodes, OneThatStaysAwayStartsNothingAnyMore) {
  Begin();
  ASSERT_EQ(Member(2).life, Life::kStarting);
  const Incarnation first = Member(2).incarnation;
  inbox.OnNodeLost(1);
  EXPECT_EQ(left, 1);
  EXPECT_EQ(LinesWith("node_lost"), 1);
  absence.Check(SteadyClock::SteadyNow() + 29s);
  EXPECT_EQ(LinesWith("node_gone"), 0);
  EXPECT_EQ(Member(2).incarnation, first);
  const TimePoint late = SteadyClock::SteadyNow() + 31s;
  absence.Check(late);
  absence.Check(late + 1s);
  EXPECT_EQ(LinesWith("node_gone"), 1) << "said once";
  EXPECT_TRUE(Member(2).incarnation != first || Member(2).life != Life::kStarting || account.ended())
      << "the ladder has gone on";
  Come(1);
  EXPECT_EQ(LinesWith("node_back"), 1);
}

TEST_F(Nodes, OneSpeaksOnlyOfItsOwnRanks) {
  Begin();
  inbox.OnNodeMessage(0, wire::WorkerStarting{{Rank(2), Incarnation(1), {}}});
  inbox.OnNodeMessage(0, wire::WorkerExited{Rank(2), Incarnation(1), "killed", {}, {}});
  inbox.OnNodeMessage(0, wire::WorkerReport{Rank(4), 1, 0.5, {}});
  inbox.OnNodeMessage(0, wire::InjectionFired{"kill:3@5", {}});
  EXPECT_TRUE(account.result().lives.empty());
  EXPECT_THAT(Whom<wire::KeepReport>(), IsEmpty());
  inbox.OnNodeMessage(1, wire::WorkerStarting{{Rank(2), Incarnation(1), {}}});
  ASSERT_EQ(account.result().lives.size(), 1u);
  inbox.OnNodeMessage(1, wire::WorkerReport{Rank(2), 1, 0.5, {}});
  EXPECT_THAT(Whom<wire::KeepReport>(), ElementsAre(0)) << "the next node keeps it, should this one be lost";
}

TEST_F(Nodes, RequestsGoBothWays) {
  Begin();
  inbox.OnNodeMessage(1, wire::NodeStop{});
  EXPECT_EQ(stops, 1);
  inbox.OnNodeMessage(1, wire::NodeAsks{5, "status"});
  ASSERT_THAT(Whom<wire::AnswerNode>(), ElementsAre(1));
  EXPECT_EQ(All<wire::AnswerNode>()[0].second.answer, "answer to status");
  std::vector<std::string> answers;
  const uint64_t asked = forwarded.Begin(1, [&](std::string answer) { answers.push_back(std::move(answer)); });
  inbox.OnNodeMessage(0, wire::NodeAnswers{asked, "not its own"});
  EXPECT_THAT(answers, IsEmpty());
  inbox.OnNodeLost(1);
  EXPECT_THAT(answers, ElementsAre(HasSubstr("node 1 was lost before it answered")));
}

TEST_F(Nodes, OneThatComesTooLateIsToldThatTheRunHasEnded) {
  Begin();
  inbox.OnNodeLost(1);
  account.End({core::kExitResumable, "saved", Step(3), std::nullopt});
  told.clear();
  Come(1);
  ASSERT_THAT(Whom<wire::NodeEnd>(), ElementsAre(1));
  EXPECT_EQ(All<wire::NodeEnd>()[0].second.text, "saved");
  EXPECT_THAT(Whom<wire::SpawnWorker>(), IsEmpty());
}

TEST_F(Nodes, BehindTheLoopsOneThatComesBackIsHeardHowItsProcessesLeave) {
  Begin();
  inbox.OnNodeLost(1);
  account.End({core::kExitSuccess, "all ranks finished", Step(3), std::nullopt});
  told.clear();
  Come(1);
  ASSERT_THAT(Whom<wire::NodeEnd>(), ElementsAre(1));
  EXPECT_TRUE(All<wire::NodeEnd>()[0].second.awaits_ends);
  account.OnStarting(Rank(2), Incarnation(1), SteadyClock::SteadyNow());
  inbox.OnNodeMessage(
      1, wire::WorkerExited{
             .rank = Rank(2), .incarnation = Incarnation(), .cause = "exited with code 4", .left = true, .code = 4});
  EXPECT_EQ(account.result().exit_code, core::kExitFailed);
  EXPECT_EQ(account.result().text, "after all loops were over, rank 2 exited with code 4");
}

TEST_F(Nodes, BehindTheLoopsTheRanksOfOneThatStaysAwayAreGone) {
  Begin();
  account.End({core::kExitSuccess, "all ranks finished", Step(3), std::nullopt});
  inbox.OnNodeLost(1);
  absence.Check(SteadyClock::SteadyNow());
  EXPECT_THAT(gone, IsEmpty()) << "it may come back";
  absence.Check(SteadyClock::SteadyNow() + 1h);
  EXPECT_THAT(gone, ElementsAre(HasSubstr("2+2: node 1 did not come back within")));
}

TEST_F(Nodes, ASpareEndsWhatItHadBefore) {
  Begin();
  Come(kSpare, {.lives = {{Rank(1), Incarnation(3), {}}}});
  ASSERT_THAT(Whom<wire::KillWorker>(), ElementsAre(kSpare));
  EXPECT_EQ(All<wire::KillWorker>()[0].second.incarnation, Incarnation(3));
}

}  // namespace
}  // namespace kintsugi
