// Launchers that know the job's secret and say what does not fit: too early, or twice. A real hub and its controller;
// whatever they say, the nodes that are here stay here, and nobody becomes a second one.
#include "runtime/controller/node_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/wire/node_codec.h"
#include "tests/support/memory_log.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kJob = "job";
constexpr Duration kSilence = std::chrono::seconds(100);

net::ClientOptions AsLauncher() {
  net::ClientOptions options = net::RecordingClient::DefaultOptions();
  options.self = {kJob, std::string(net::kLauncherRole)};
  return options;
}

wire::NodeHello Hello(int node, uint64_t launcher) {
  return {.node_rank = node, .nodes = 2, .local_ranks = 1, .address = "here", .launcher = launcher};
}

// A node's launcher, as far as its connection goes.
class Node {
 public:
  Node(net::Loop& loop, uint16_t port, std::shared_ptr<const net::Secret> secret)
      : client_(loop, std::move(secret), AsLauncher()) {
    client_.Connect(port);
    EXPECT_TRUE(loop.RunUntil([&] { return client_.opened.size() == 1; }));
  }
  void Say(const wire::NodeMessage& message) { SayBytes(wire::Encode(kJob, Term{1, 1}, message)); }
  void SayBytes(std::string bytes) { (void)client_.connection()->Send(std::move(bytes)); }
  bool ended() const { return !client_.closed.empty(); }
  // What it was told: accepted, or why not.
  std::vector<std::string> Welcomes() const {
    std::vector<std::string> welcomes;
    for (const std::string& bytes : client_.frames) {
      const wire::NodeOrderFrame frame = wire::DecodeToNode(kJob, bytes).value();
      if (const auto* welcome = std::get_if<wire::NodeWelcome>(&frame.order))
        welcomes.push_back(welcome->accepted ? "welcome" : welcome->text);
    }
    return welcomes;
  }

 private:
  net::RecordingClient client_;
};

class NodeHubTest : public ::testing::Test, private ControllerHost, private NodeEvents {
 protected:
  void SetUp() override {
    ControllerOptions options;
    options.job = kJob;
    options.policy.world_size = 2;
    controller = std::make_unique<Controller>(loop.io(), options, secret, static_cast<ControllerHost&>(*this), log);
    NodeHubOptions nodes{.job = kJob, .term = {1, 1}, .nodes = 2, .version = "0.1 (commit a)", .silence = kSilence};
    nodes.alike = {"--save-every=100"};
    nodes.own = {"--grace=30"};
    hub = std::make_unique<NodeHub>(nodes, *controller, static_cast<NodeEvents&>(*this), log);
    controller->ServeNodes(*hub);
    ASSERT_TRUE(controller->Listen().ok());
    first = Connect();
    first->Say(Hello(0, 11));
    ASSERT_TRUE(loop.RunUntil([&] { return hub->connected(0); }));
  }
  // Node 0 is what it was, and still heard.
  void TearDown() override {
    const size_t before = messages.size();
    first->Say(wire::NodeSpares{3});
    EXPECT_TRUE(loop.RunUntil([&] { return messages.size() == before + 1; }));
    EXPECT_EQ(messages.back(), 0);
    EXPECT_TRUE(hub->connected(0));
    EXPECT_FALSE(first->ended());
    EXPECT_THAT(joined, ElementsAre(0));
    EXPECT_THAT(lost, IsEmpty());
    EXPECT_THAT(first->Welcomes(), ElementsAre("welcome"));
    hub.reset();
  }

  std::unique_ptr<Node> Connect() { return std::make_unique<Node>(loop, controller->port(), secret); }
  bool Refused(uint64_t frames) {
    return loop.RunUntil([&] { return hub->refused_frames() == frames; });
  }

  void OnNodeJoined(int node, const wire::NodeHello&) override { joined.push_back(node); }
  void OnNodeLost(int node) override { lost.push_back(node); }
  void OnNodeMessage(int node, const wire::NodeMessage&) override { messages.push_back(node); }
  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank, Incarnation, const std::string&) override {}
  void OnTransition(const core::Transition&) override {}
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded&) override {}

  net::Loop loop;
  std::shared_ptr<const net::Secret> secret = net::NewSecret();
  std::shared_ptr<MemoryLogSink> log = std::make_shared<MemoryLogSink>();
  std::unique_ptr<Controller> controller;
  std::unique_ptr<NodeHub> hub;
  std::unique_ptr<Node> first;  // of node 0, by the launcher 11
  std::vector<int> joined, lost, messages;
};

TEST_F(NodeHubTest, ASecondHelloChangesNothing) {
  first->Say(Hello(0, 11));
  ASSERT_TRUE(Refused(1));
  first->Say(Hello(1, 11));
  ASSERT_TRUE(Refused(2));
  EXPECT_FALSE(hub->connected(1));
  wire::NodeHello of_another_run = Hello(0, 11);
  of_another_run.nodes = 3;
  first->Say(of_another_run);
  ASSERT_TRUE(Refused(3));
  EXPECT_THAT(log->lines(), Contains(HasSubstr("says hello twice: as node 0, and as node 1")));
}

TEST_F(NodeHubTest, WhoSpeaksBeforeItsHelloIsShownOut) {
  const auto stranger = Connect();
  stranger->Say(wire::FromAgentChannel{1, "anything"});
  ASSERT_TRUE(loop.RunUntil([&] { return stranger->ended(); }));
  EXPECT_EQ(hub->refused_frames(), 1u);
  EXPECT_EQ(controller->refused_frames(), 0u);  // nothing of it came as far as that
  EXPECT_THAT(log->lines(), Contains(HasSubstr("speaks before its hello was accepted")));
}

TEST_F(NodeHubTest, WhatIsNoFrameEndsTheConnectionsOfStrangersOnly) {
  const auto stranger = Connect();
  stranger->SayBytes("\xff\xff\xff");
  ASSERT_TRUE(loop.RunUntil([&] { return stranger->ended(); }));
  first->SayBytes("\xff\xff\xff");
  ASSERT_TRUE(Refused(2));
}

TEST_F(NodeHubTest, AHelloThatDoesNotFitIsAnsweredWithTheReason) {
  const auto stranger = Connect();
  wire::NodeHello hello = Hello(1, 12);
  hello.local_ranks = 4;
  stranger->Say(hello);
  ASSERT_TRUE(loop.RunUntil([&] { return stranger->ended(); }));
  EXPECT_THAT(stranger->Welcomes(), ElementsAre(HasSubstr("node 1 says --nproc 4, the controller 1")));
}

TEST_F(NodeHubTest, OptionsThatMustBeAlikeAreComparedAndOthersAreTold) {
  const auto stranger = Connect();
  wire::NodeHello hello = Hello(1, 12);
  hello.alike = {"--save-every=50"};
  stranger->Say(hello);
  ASSERT_TRUE(loop.RunUntil([&] { return stranger->ended(); }));
  EXPECT_THAT(stranger->Welcomes(), ElementsAre(HasSubstr("node 1 has --save-every 50, the one that leads 100")));
  auto other = Connect();
  hello.launcher = 13;
  hello.alike = {"--save-every=100"};
  hello.own = {"--grace=5"};
  hello.version = "0.2 (commit b)";
  other->Say(hello);
  ASSERT_TRUE(loop.RunUntil([&] { return hub->connected(1); }));
  EXPECT_THAT(log->lines(), Contains(AllOf(HasSubstr("node_differs"), HasSubstr("--grace"), HasSubstr("has=5 leader_has=30"))));
  EXPECT_THAT(log->lines(), Contains(AllOf(HasSubstr("node_differs"), HasSubstr("version"), HasSubstr("commit b"))));
  other.reset();
  ASSERT_TRUE(loop.RunUntil([&] { return !lost.empty(); }));
  joined.pop_back(), lost.clear();  // as they were before it came
}

// Who waits for the place of a launcher that may be dead would else be two nodes once that one is silent.
TEST_F(NodeHubTest, WhoClaimsOneNodeIsShownOutWhereItSaysHelloAsAnother) {
  const auto claimant = Connect();
  claimant->Say(Hello(0, 12));
  claimant->Say(Hello(1, 12));
  ASSERT_TRUE(loop.RunUntil([&] { return claimant->ended(); }));
  EXPECT_THAT(claimant->Welcomes(), ElementsAre(HasSubstr("says hello twice: as node 0, and as node 1")));
  EXPECT_FALSE(hub->connected(1));
  hub->Poll(SteadyClock::SteadyNow() + 2 * kSilence);
}

TEST_F(NodeHubTest, WhoClaimsANodeAndSpeaksForItIsShownOut) {
  const auto claimant = Connect();
  claimant->Say(Hello(0, 12));
  claimant->Say(wire::NodeSpares{9});
  ASSERT_TRUE(loop.RunUntil([&] { return claimant->ended(); }));
  EXPECT_THAT(messages, IsEmpty());
  hub->Poll(SteadyClock::SteadyNow() + 2 * kSilence);
}

}  // namespace
}  // namespace kintsugi
