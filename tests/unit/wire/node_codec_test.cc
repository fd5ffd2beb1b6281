// The node codec brings back what went in, and refuses whatever is out of range.
#include "runtime/wire/node_codec.h"

#include <gtest/gtest.h>

#include "runtime/base/random.h"
#include "runtime/wire/node.pb.h"

namespace kintsugi::wire {
namespace {

const Term kTerm{7, 3};

template <typename T>
T There(const T& message) {
  const auto frame = DecodeFromNode("job", Encode("job", kTerm, NodeMessage(message)));
  EXPECT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->term, kTerm);
  return std::get<T>(frame->message);
}

template <typename T>
T Back(const T& order) {
  const auto frame = DecodeToNode("job", Encode("job", kTerm, NodeOrder(order)));
  EXPECT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->term, kTerm);
  return std::get<T>(frame->order);
}

TEST(NodeCodec, BringsBackAHello) {
  const NodeHello got =
      There(NodeHello{2,
                      5,
                      8,
                      "10.0.0.3",
                      {{Rank(16), Incarnation(4), {"0 kill:16@3", "\xff"}}, {Rank(17), Incarnation(1), {}}},
                      29400,
                      true,
                      3,
                      29500,
                      0xfedcba9876543210});
  EXPECT_EQ(got.launcher, 0xfedcba9876543210u);
  EXPECT_TRUE(got.witness);
  EXPECT_EQ(got.controllers, 3);
  EXPECT_EQ(got.master_port, 29500);
  EXPECT_EQ(got.port, 29400);
  EXPECT_EQ(got.node_rank, 2);
  EXPECT_EQ(got.nodes, 5);
  EXPECT_EQ(got.local_ranks, 8);
  EXPECT_EQ(got.address, "10.0.0.3");
  ASSERT_EQ(got.lives.size(), 2u);
  EXPECT_EQ(got.lives[0].rank, Rank(16));
  EXPECT_EQ(got.lives[0].incarnation, Incarnation(4));
  EXPECT_EQ(got.lives[0].armed, (std::vector<std::string>{"0 kill:16@3", "\xff"}));
}

TEST(NodeCodec, BringsBackPagesBitByBit) {
  const Pages got = There(Pages{{{Rank(3), Incarnation(2), 9, 0xfedcba9876543210, 0x8000000000000001, Duration(17)}}});
  ASSERT_EQ(got.pages.size(), 1u);
  EXPECT_EQ(got.pages[0].beat, 9u);
  EXPECT_EQ(got.pages[0].gate_word, 0xfedcba9876543210u);
  EXPECT_EQ(got.pages[0].progress, 0x8000000000000001u);
  EXPECT_EQ(got.pages[0].progress_age, Duration(17));
}

TEST(NodeCodec, BringsBackWhatAWorkerDid) {
  EXPECT_EQ(There(WorkerStarting{{Rank(1), Incarnation(2), {"x"}}}).life.armed.size(), 1u);
  const WorkerReport report = There(WorkerReport{Rank(1), 5, 0.1, {3, ~uint64_t{0}}});
  EXPECT_EQ(report.loss, 0.1);
  EXPECT_EQ(report.samples, (core::SampleSum{3, ~uint64_t{0}}));
  EXPECT_EQ(There(InjectionFired{"kill:1@2", Duration(5)}).spec, "kill:1@2");
  const WorkerExited exited =
      There(WorkerExited{Rank(1), Incarnation(2), "killed by SIGKILL", Duration(3), Duration(4)});
  EXPECT_EQ(exited.cause, "killed by SIGKILL");
  EXPECT_EQ(exited.since_age, Duration(4));
  EXPECT_EQ(There(WorkerExited{Rank(1), Incarnation(2), "", Duration(3), {}}).since_age, std::nullopt);
}

TEST(NodeCodec, PassesFramesOfAgentsThroughWhateverTheyHold) {
  const std::string frame("\0\xff\n", 3);
  EXPECT_EQ(There(FromAgentChannel{9, frame}).frame, frame);
  EXPECT_EQ(Back(ToAgentChannel{9, frame}).frame, frame);
  EXPECT_EQ(There(AgentChannelClosed{8}).channel, 8u);
  EXPECT_EQ(Back(CloseAgentChannel{0}).channel, 0u);
  (void)There(NodeStop{});
  EXPECT_EQ(There(NodeAsks{7, "{\"command\":\"status\"}"}).request, "{\"command\":\"status\"}");
  EXPECT_EQ(There(NodeAnswers{8, frame}).answer, frame);
  EXPECT_EQ(There(NodeAnswers{8, frame}).id, 8u);
  EXPECT_EQ(Back(AskNode{9, frame}).request, frame);
  EXPECT_EQ(Back(AnswerNode{10, frame}).id, 10u);
  EXPECT_EQ(Back(AnswerNode{10, frame}).answer, frame);
  EXPECT_EQ(Back(NodeNews{LogLevel::kWarning, "event=x"}).level, LogLevel::kWarning);
  EXPECT_EQ(Back(NodeNews{LogLevel::kWarning, "event=x"}).line, "event=x");
  EXPECT_EQ(There(NodeSpares{3}).waiting, 3);
  EXPECT_EQ(There(NodeHeld{Rank(3), std::nullopt}).held, std::nullopt);
  const core::HeldState held{Incarnation(4), Step(7), true};
  EXPECT_EQ(There(NodeHeld{Rank(3), held}).held, held);
  const NodeHello hello = There(NodeHello{.held = {{Rank(3), held, frame}, {Rank(4), std::nullopt}}});
  ASSERT_EQ(hello.held.size(), 2u);
  EXPECT_EQ(hello.held[0].held, held);
  EXPECT_EQ(hello.held[0].ready, frame);
  EXPECT_EQ(hello.held[1].rank, Rank(4));
  EXPECT_EQ(There(TieRuleKept{7}).number, 7u);
}

TEST(NodeCodec, BringsBackOrders) {
  const NodeWelcome welcome = Back(NodeWelcome{true, "", "10.0.0.1", 29500, Duration(250)});
  EXPECT_EQ(welcome.master_address, "10.0.0.1");
  EXPECT_EQ(welcome.master_port, 29500);
  EXPECT_EQ(welcome.beat, Duration(250));
  EXPECT_EQ(Back(NodeWelcome{.accepted = false, .text = "why"}).text, "why");
  EXPECT_EQ(Back(SpawnWorker{Rank(4), Incarnation(3)}).incarnation, Incarnation(3));
  EXPECT_EQ(Back(KillWorker{Rank(4), Incarnation(3), "late"}).reason, "late");
  EXPECT_EQ(Back(NodeEnd{75, "saved"}).exit_code, 75);
  EXPECT_FALSE(Back(NodeEnd{75, "saved"}).asked);
  EXPECT_TRUE(Back(NodeEnd{75, "saved", true}).asked);
}

TEST(NodeCodec, BringsBackWhatAnElectionSays) {
  EXPECT_EQ(There(VoteRequest{3, 9}).term, 9u);
  const Vote vote = There(Vote{3, 9, true, {Rank(4), Rank(5)}, {Rank(6)}});
  EXPECT_TRUE(vote.granted);
  EXPECT_EQ(vote.live, (std::vector<Rank>{Rank(4), Rank(5)}));
  EXPECT_EQ(vote.ended, (std::vector<Rank>{Rank(6)}));
  core::Placement placement;
  placement.Begin(4);
  placement.Move(1, 2, 3, Generation(7));
  for (const core::Placement& back :
       {There(VoteRequest{3, 9, placement}).placement, There(Vote{3, 9, true, {}, {}, placement}).placement,
        Back(NodeBlocks{placement}).placement, Back(Leads{{2, "10.0.0.3", 4000}, true, placement}).placement,
        Back(NodeWelcome{.beat = Duration(1), .placement = placement}).placement}) {
    EXPECT_EQ(back.version(), placement.version());
    EXPECT_EQ(back.moved(), placement.moved());
  }
  EXPECT_EQ(There(NodeInject{Rank(2), "0 kill:2@3"}).injection, "0 kill:2@3");
  EXPECT_EQ(Back(Leads{{2, "10.0.0.3", 4000}}).controller.port, 4000);
  EXPECT_FALSE(Back(Leads{{2, "10.0.0.3", 4000}}).part);
  EXPECT_TRUE(Back(Leads{{2, "10.0.0.3", 4000}, true}).part);
  const NodePlaces places = Back(NodePlaces{{{0, "a", 1}, {7, "b", 65535}}});
  ASSERT_EQ(places.places.size(), 2u);
  EXPECT_EQ(places.places[1].address, "b");
  EXPECT_EQ(Back(KeepReport{{Rank(1), 5, 0.5, {1, 7}}}).report.samples, (core::SampleSum{1, 7}));
  const core::LedgerTotals totals{.step = 9,
                                  .steps = 8,
                                  .samples = 7,
                                  .digest = ~uint64_t{0},
                                  .reports = 6,
                                  .last_loss = 0.1,
                                  .reporters = std::string("\xff\0\x01", 3),
                                  .curve_every = 4,
                                  .curve = {0.1, 1e-300},
                                  .notes = {{1, 2, 3, 4, 5, 0.6}}};
  const KeepTotals kept = Back(KeepTotals{totals, 5});
  EXPECT_EQ(kept.totals, totals);
  EXPECT_EQ(kept.curve_from, 5u);
  const NodePulse pulse =
      Back(NodePulse{true, {{Step(3), "x"}, {Step(9), "y"}}, Generation(4), {6, core::TieRule::kWitness}});
  EXPECT_EQ(pulse.generation, Generation(4));
  EXPECT_EQ(pulse.tie.number, 6u);
  EXPECT_EQ(pulse.tie.rule, core::TieRule::kWitness);
  EXPECT_TRUE(pulse.began);
  ASSERT_EQ(pulse.checkpoints.size(), 2u);
  EXPECT_EQ(pulse.checkpoints[1], (core::Checkpoint{Step(9), "y"}));
  EXPECT_EQ(Back(NodeWelcome{true, "", "m", 1, Duration(1), "world_size=4"}).policy, "world_size=4");
  EXPECT_EQ(Back(NodeWelcome{true, "", "m", 1, Duration(1), "", "job/1"}).run, "job/1");
}

TEST(NodeCodec, RefusesWhatIsOutOfRange) {
  const auto refused = [](auto fill) {
    pb::NodeEnvelope envelope;
    envelope.set_job("job");
    fill(envelope);
    const std::string bytes = envelope.SerializeAsString();
    return !DecodeFromNode("job", bytes).ok() && !DecodeToNode("job", bytes).ok();
  };
  EXPECT_TRUE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_starting()->set_rank(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_hello()->set_node_rank(1); }));  // of 0 nodes
  EXPECT_TRUE(refused([](auto& e) { e.mutable_pages()->add_pages()->set_progress_age_ns(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_exited()->set_age_ns(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_report()->set_rank(-2); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_fired()->set_age_ns(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.set_spares(1 << 30); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_spawn()->set_rank(-1); }));
  EXPECT_TRUE(refused([](auto& e) {
    e.mutable_welcome()->set_accepted(true);
    e.mutable_welcome()->set_master_port(70000);
    e.mutable_welcome()->set_beat_ns(1);
  }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_vote()->add_live(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_vote_request()->set_node(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_leads()->mutable_controller()->set_port(65536); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_leads()->mutable_placement()->add_moved()->set_node(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_places()->add_places()->set_node(-1); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_pulse()->add_checkpoints()->set_step(~0ull); }));
  EXPECT_TRUE(refused([](auto& e) { e.mutable_welcome()->set_accepted(true); }));  // pages told without end
}

TEST(NodeCodec, RefusesAnotherJobAndTheOtherDirection) {
  const std::string stop = Encode("theirs", kTerm, NodeMessage(NodeStop{}));
  const Status status = DecodeFromNode("mine", stop).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'theirs'"), std::string::npos);
  EXPECT_FALSE(DecodeToNode("theirs", stop).ok());
  EXPECT_FALSE(DecodeFromNode("job", Encode("job", kTerm, NodeOrder(NodeEnd{}))).ok());
}

TEST(NodeCodec, TakesAnyBytesWithoutHarm) {
  Random random(5);
  const std::string whole =
      Encode("job", kTerm, NodeMessage(NodeHello{1, 2, 2, "10.0.0.1", {{Rank(2), Incarnation(1), {"a"}}}}));
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole;
    for (uint64_t times = 1 + random.Below(4); times-- > 0;)
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    if (random.Chance(0.3)) bytes.resize(random.Below(bytes.size()));
    (void)DecodeFromNode("job", bytes);
    (void)DecodeToNode("job", bytes);
  }
}

}  // namespace
}  // namespace kintsugi::wire
