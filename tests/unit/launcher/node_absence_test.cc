// Nodes that stay away: who is waited for and how long, who takes their ranks over, what is told. The controller and
// the registry are the real ones; nodes are told into a list.
#include "runtime/launcher/leader/node_absence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

// Two nodes of two ranks, and a spare node.
constexpr NodeShape kShape{2, 0, 2};
constexpr int kSpare = 2;
constexpr NodeWaits kWaits{.to_begin = 30s, .to_return = 60s, .spare_after = 5s, .shrink_after = 20s};

class Absence : public ::testing::Test, private ControllerHost, private NodeOrders, private HostEvents {
 protected:
  static core::Policy Policy() {
    core::Policy policy;
    policy.world_size = 4;
    policy.node_ranks = 2;
    return policy;
  }
  void Come(int node) {
    wire::NodeHello hello;
    hello.address = "10.0.0." + std::to_string(node);
    registry.OnJoined(node, hello, begin);
  }
  // All are here, and their processes are being started.
  void Begin() {
    for (int node : {0, 1}) Come(node);
    account.Start();
    controller.Start();
    told.clear();
  }
  void Lose(int node) {
    registry.OnLost(node, begin);
    absence.OnLost(node);
  }
  std::vector<std::string> Logged(const std::string& event) const {
    std::vector<std::string> found;
    for (const std::string& line : log->lines)
      if (line.find(event) != std::string::npos) found.push_back(line);
    return found;
  }

  // ControllerHost, NodeOrders, HostEvents: all is written down.
  void Spawn(Rank rank, Incarnation life) override {
    told.push_back("start " + rank.ToString() + "." + std::to_string(life.value()));
  }
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition&) override {}
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded& ended) override { account.End(ended); }
  bool Send(int node, const wire::NodeOrder& order) override {
    if (std::holds_alternative<wire::NodeBlocks>(order)) told.push_back("places to node " + std::to_string(node));
    return true;
  }
  void SetPlacement(core::Placement) override {}
  void OnCame() override {}
  void OnLeft() override {}
  void OnGone(core::RankBlock ranks, const std::string& why) override {
    gone.push_back(ranks.first.ToString() + "+" + std::to_string(ranks.ranks) + ": " + why);
  }
  void OnNobodyCame(const std::string& why) override { nobody_came.push_back(why); }
  void Stop() override {}
  void OnRequest(const std::string&, std::function<void(std::string)>) override {}

  const TimePoint begin = SteadyClock::SteadyNow();
  const core::Policy policy = Policy();
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  std::vector<std::string> told, gone, nobody_came;
  RunAccount account{policy, Generation(), begin};
  Controller controller{io, {.policy = policy, .job = "job"}, net::Secret::Generate().value(), *this, log};
  NodeRegistry registry{kShape, {}, begin};
  EvenSplits splits{controller, account, core::TieRule{}, std::nullopt};
  NodeBroadcast broadcast{registry, *this, account, splits, 250ms, log};
  NodeAbsence absence{kWaits, 1, controller, account, {registry, *this, splits, broadcast}, *this};
};

TEST_F(Absence, EndsARunThatCannotBegin) {
  Come(0);
  absence.Check(begin + 29999ms);
  EXPECT_THAT(nobody_came, IsEmpty());
  absence.Check(begin + 30s);
  EXPECT_THAT(nobody_came, ElementsAre(AllOf(HasSubstr("node 1"), HasSubstr("30 s"))));
}

TEST_F(Absence, OfASpareNodeKeepsNobodyWaiting) {
  for (int node : {0, 1, kSpare}) Come(node);
  registry.OnLost(kSpare, begin);
  absence.OnLost(kSpare);
  absence.Check(begin + 1h);
  EXPECT_THAT(nobody_came, IsEmpty());
  EXPECT_EQ(Logged("spare_node_lost").size(), 1u);
  EXPECT_THAT(Logged("node_lost"), Each(Not(HasSubstr("ranks"))));
}

TEST_F(Absence, IsWaitedForBeforeItsProcessesAreGivenUp) {
  Begin();
  Lose(1);
  EXPECT_THAT(Logged("node_lost"), ElementsAre(AllOf(HasSubstr("ranks=2-3"), HasSubstr("10.0.0.1"))));
  registry.At(1).to_spawn[Rank(2)] = Incarnation(1);
  absence.Check(begin + 59999ms);
  EXPECT_THAT(Logged("node_gone"), IsEmpty());
  EXPECT_EQ(registry.At(1).to_spawn.size(), 1u);
  EXPECT_THAT(told, IsEmpty());
  absence.Check(begin + 60s);
  EXPECT_THAT(Logged("node_gone"), ElementsAre(HasSubstr("within 60 s")));
  EXPECT_THAT(registry.At(1).to_spawn, IsEmpty()) << "should it come back, it does not start what was given up";
  EXPECT_EQ(account.result().exit_code, core::kExitStartup);
  EXPECT_THAT(account.result().text, HasSubstr("node 1 did not come back within 60 s"));
}

TEST_F(Absence, GivesNothingUpWhileASpareNodeIsHere) {
  Begin();
  Come(kSpare);
  Lose(1);
  EXPECT_THAT(Logged("node_lost"), ElementsAre(HasSubstr("5 s, then a spare node")));
  absence.Check(begin + 1h);
  EXPECT_THAT(Logged("node_gone"), IsEmpty());
  EXPECT_THAT(told, IsEmpty());
  EXPECT_EQ(registry.NodeOf(Rank(2)), 1) << "ranks move once the run waits for nothing but them";
  Lose(kSpare);
  absence.Check(begin + 1h);
  EXPECT_EQ(Logged("node_gone").size(), 1u) << "nobody is left to take them";
}

TEST_F(Absence, OfOneThatIsCutOffIsGivenUpAtOnceWithoutASpareNode) {
  Begin();
  absence.CutOff(1, "nobody hears it");
  absence.Check(begin);
  EXPECT_EQ(registry.NodeOf(Rank(2)), 1);
  EXPECT_THAT(Logged("node_gone"), ElementsAre(HasSubstr("others cannot reach node 1")));
}

TEST_F(Absence, BehindTheLoopsIsAnEndThatNobodyHears) {
  Begin();
  account.End({core::kExitSuccess, "all ranks have finished", Step(7), 0});
  ASSERT_TRUE(account.awaits_ends());
  Lose(1);
  absence.Check(begin + 59999ms);
  EXPECT_THAT(gone, IsEmpty()) << "it may come back, and say how they ended";
  absence.Check(begin + 60s);
  EXPECT_THAT(gone, ElementsAre(AllOf(HasSubstr("2+2"), HasSubstr("within 60 s"))));
  EXPECT_THAT(Logged("node_gone"), IsEmpty());
}

}  // namespace
}  // namespace kintsugi
