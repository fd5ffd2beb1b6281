// Peers that know the job's secret and lie: about their rank, their life, their term or generation. A real controller
// with two honest ranks; every lie is refused and counted, and the run does not leave RUNNING.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/overloaded.h"
#include "runtime/controller/controller.h"
#include "runtime/wire/codec.h"
#include "tests/support/memory_log.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi {
namespace {

using core::Phase;

constexpr const char* kJob = "job";

// A connection that has made the handshake and says what it is told to.
class Peer {
 public:
  Peer(net::Loop& loop, uint16_t port, std::shared_ptr<const net::Secret> secret) : loop_(loop), client_(loop, secret) {
    client_.Connect(port);
    EXPECT_TRUE(loop.RunUntil([&] { return client_.opened.size() == 1; }));
  }
  void Say(const core::Header& header, const core::AgentMessage& message) {
    SayBytes(wire::Encode(kJob, header, message));
  }
  void SayBytes(std::string bytes) {
    if (const auto connection = client_.connection()) (void)connection->Send(std::move(bytes));
  }
  bool ended() const { return !client_.closed.empty(); }
  std::vector<wire::ControllerFrame> Heard() const {
    std::vector<wire::ControllerFrame> heard;
    for (const std::string& bytes : client_.frames) heard.push_back(wire::DecodeFromController(kJob, bytes).value());
    return heard;
  }

 protected:
  net::Loop& loop_;
  net::RecordingClient client_;
};

// A rank that does what it is told at once.
class HonestRank : public Peer {
 public:
  HonestRank(net::Loop& loop, uint16_t port, std::shared_ptr<const net::Secret> secret, Rank rank)
      : Peer(loop, port, std::move(secret)), header_{{}, {}, rank, Incarnation(1)} {
    Say(header_, core::JoinRequest{pid(), "here", false});
  }
  uint64_t pid() const { return 100 + static_cast<uint64_t>(header_.rank.value()); }
  const core::Header& header() const { return header_; }
  bool connected() const { return client_.closed.empty(); }

  void Obey() {
    const auto heard = Heard();
    for (; obeyed_ < heard.size(); ++obeyed_) {
      header_ = heard[obeyed_].header;
      std::visit(Overloaded{
                     [&](const core::JoinReply& reply) {
                       EXPECT_TRUE(reply.accepted) << reply.text;
                       core::Ready ready;
                       ready.layouts[0] = {{header_.rank}, 1};
                       Say(header_, ready);
                     },
                     [&](const core::PhaseOrder& order) { Say(header_, core::PhaseDone{.phase = order.phase}); },
                     [&](const core::ResumeOrder&) { Say(header_, core::Resumed{}); },
                     [](const auto&) {},
                 },
                 heard[obeyed_].message);
    }
    Say(header_, core::Beat{++beats_, {}});
  }

 private:
  core::Header header_;
  size_t obeyed_ = 0;
  uint64_t beats_ = 0;
};

class LyingPeer : public ::testing::Test, private ControllerHost {
 protected:
  void SetUp() override {
    ControllerOptions options;
    options.job = kJob;
    options.policy.world_size = 2;
    options.policy.silence = std::chrono::seconds(10);
    controller = std::make_unique<Controller>(loop.io(), options, secret, static_cast<ControllerHost&>(*this), log);
    ASSERT_TRUE(controller->Listen().ok());
    controller->Start();
    for (int r = 0; r < 2; ++r)
      ranks.push_back(std::make_unique<HonestRank>(loop, controller->port(), secret, Rank(r)));
    ASSERT_TRUE(Until([&] { return controller->core().phase() == Phase::kRunning && AllResumed(); }));
    transitions.clear();
  }

  void TearDown() override {
    Until([n = 0]() mutable { return ++n > 20; });  // whatever a lie set going has time to show
    EXPECT_THAT(transitions, ::testing::IsEmpty()) << "a lie disturbed the run";
    EXPECT_THAT(given_up, ::testing::IsEmpty());
    EXPECT_EQ(controller->core().phase(), Phase::kRunning);
    EXPECT_EQ(controller->core().generation(), Generation(1));
    for (const auto& rank : ranks) EXPECT_TRUE(rank->connected());
  }

  bool Until(const std::function<bool()>& done) {
    return loop.RunUntil([&] {
      for (const auto& rank : ranks) rank->Obey();
      return done();
    });
  }
  bool AllResumed() const {
    for (const auto& member : controller->core().members())
      if (!member.resumed || !member.connected) return false;
    return true;
  }
  std::unique_ptr<Peer> Stranger() { return std::make_unique<Peer>(loop, controller->port(), secret); }
  const core::ControllerCore::Member& Member(size_t rank) const { return controller->core().members()[rank]; }

  // The join is answered by a refusal that says this, then the connection ends.
  void ExpectJoinRefused(const core::Header& header, const core::JoinRequest& join, const std::string& why) {
    const uint64_t before = controller->core().dropped_messages();
    const auto liar = Stranger();
    liar->Say(header, join);
    ASSERT_TRUE(Until([&] { return liar->ended(); }));
    const auto heard = liar->Heard();
    ASSERT_EQ(heard.size(), 1u);
    const auto* reply = std::get_if<core::JoinReply>(&heard[0].message);
    ASSERT_NE(reply, nullptr);
    EXPECT_FALSE(reply->accepted);
    EXPECT_THAT(reply->text, ::testing::HasSubstr(why));
    EXPECT_EQ(controller->core().dropped_messages(), before + 1);
  }
  // What it says is counted, and the connection ends.
  void ExpectShownOut(const std::string& bytes, const std::string& why) {
    const uint64_t before = controller->refused_frames();
    const auto liar = Stranger();
    liar->SayBytes(bytes);
    ASSERT_TRUE(Until([&] { return liar->ended(); }));
    EXPECT_EQ(controller->refused_frames(), before + 1);
    EXPECT_THAT(log->lines(), ::testing::Contains(::testing::HasSubstr(why)));
  }
  // An honest rank's connection says this; it is dropped, and the rank goes on.
  void ExpectDropped(const core::Header& header, const core::AgentMessage& message) {
    const uint64_t before = controller->core().dropped_messages();
    ranks[0]->Say(header, message);
    ASSERT_TRUE(Until([&] { return controller->core().dropped_messages() == before + 1; })) << message.index();
  }

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank rank, Incarnation, const std::string&) override { given_up.push_back(rank); }
  void OnTransition(const core::Transition& t) override { transitions.push_back(t.reason); }
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string& text) override { notices.push_back(text); }
  void OnEnded(const core::RunEnded& ended) override { transitions.push_back(ended.text); }

  net::Loop loop;
  std::shared_ptr<const net::Secret> secret = net::NewSecret();
  std::shared_ptr<MemoryLogSink> log = std::make_shared<MemoryLogSink>();
  std::unique_ptr<Controller> controller;
  std::vector<std::unique_ptr<HonestRank>> ranks;
  std::vector<std::string> transitions;
  std::vector<std::string> notices;
  std::vector<Rank> given_up;
};

TEST_F(LyingPeer, CannotJoinAsARankThatIsThere) {
  ExpectJoinRefused(ranks[1]->header(), {4711, "elsewhere", false}, "process 101 is rank 1 already, process 4711");
}

TEST_F(LyingPeer, CannotJoinAsAnotherLifeOfARank) {
  core::Header header = ranks[1]->header();
  ASSERT_EQ(header.incarnation, Incarnation(1));
  header.incarnation = Incarnation(0);
  ExpectJoinRefused(header, {101, "here", false}, "was given up; the living one is 1");
  header.incarnation = Incarnation(2);
  ExpectJoinRefused(header, {101, "here", false}, "was not started by this launcher");
  header.incarnation = Incarnation(~0ull);
  ExpectJoinRefused(header, {101, "here", false}, "was not started by this launcher");
}

TEST_F(LyingPeer, CannotJoinAsARankOutsideTheWorld) {
  const core::Header header{{}, {}, Rank(2), {}};
  ExpectShownOut(wire::Encode(kJob, header, core::AgentMessage(core::JoinRequest{1, "x", false})), "joins as rank 2");
}

TEST_F(LyingPeer, SpeaksForNobodyBeforeItHasJoined) {
  ExpectShownOut(wire::Encode(kJob, ranks[1]->header(), core::AgentMessage(core::Finished{Step(9)})),
                 "speaks for rank 1, incarnation 1");
  ExpectShownOut(wire::Encode(kJob, ranks[1]->header(), wire::RankReport{3, 0.5, {1}}), "speaks for rank 1");
}

TEST_F(LyingPeer, GarbageAndOtherJobsAreShownOut) {
  ExpectShownOut("\xff\xff\xff", "no control message");
  ExpectShownOut(wire::Encode("other", ranks[1]->header(), core::AgentMessage(core::Resumed{})), "of job 'other'");
}

TEST_F(LyingPeer, ARankSpeaksForNoOther) {
  for (int times = 0; times < 5; ++times)
    ranks[0]->Say(ranks[1]->header(), core::FaultReport{.kind = core::FaultKind::kMemoryHigh, .text = "not mine"});
  core::Header reborn = ranks[0]->header();
  reborn.incarnation = reborn.incarnation.Next();
  ranks[0]->Say(reborn, core::Finished{Step(100)});
  ASSERT_TRUE(Until([&] { return controller->refused_frames() == 6; }));
  EXPECT_FALSE(Member(0).finished);
  EXPECT_FALSE(Member(1).trust.needs_repair());
}

TEST_F(LyingPeer, AConnectionJoinsOnce) {
  const core::JoinRequest join{ranks[0]->pid(), "here", false};
  ranks[0]->Say(ranks[0]->header(), join);
  ranks[0]->Say(ranks[1]->header(), join);
  core::Header reborn = ranks[0]->header();
  reborn.incarnation = reborn.incarnation.Next();
  ranks[0]->Say(reborn, join);
  reborn.rank = Rank(7);
  ranks[0]->Say(reborn, join);
  const uint64_t dropped = controller->core().dropped_messages();
  ASSERT_TRUE(Until([&] { return controller->refused_frames() == 4; }));
  EXPECT_EQ(controller->core().dropped_messages(), dropped);  // none of it came as far as that
  EXPECT_THAT(log->lines(), ::testing::Contains(::testing::HasSubstr("joins twice: as rank 0, and as rank 1")));
}

TEST_F(LyingPeer, AForeignTermIsDroppedWhateverItSays) {
  core::Header header = ranks[0]->header();
  for (const Term term : {Term{header.term.number + 1, header.term.controller_id},
                          Term{header.term.number, header.term.controller_id + 1}, Term{0, 0}}) {
    header.term = term;
    ExpectDropped(header, core::FaultReport{.kind = core::FaultKind::kMemoryHigh, .text = "of another term"});
    ExpectDropped(header, core::Finished{Step(5)});
    ExpectDropped(header, core::Published{Step(5), "/nowhere"});
  }
}

TEST_F(LyingPeer, AForeignGenerationIsDropped) {
  core::Header header = ranks[0]->header();
  for (const Generation generation : {Generation(0), Generation(2), Generation(~0ull)}) {
    header.generation = generation;
    ExpectDropped(header, core::FaultReport{.kind = core::FaultKind::kException, .text = "of another generation"});
    ExpectDropped(header, core::LockReply{core::GateState::kTorn, Step(1000), true});
    ExpectDropped(header, core::PhaseDone{.phase = Phase::kRepair, .code = StatusCode::kInternal});
    ExpectDropped(header, core::Finished{Step(5)});
    ExpectDropped(header, core::GateEntered{Step(5)});
  }
}

TEST_F(LyingPeer, AReportOfAnAbsurdStepIsRefused) {
  const core::Header header = ranks[0]->header();
  for (uint64_t step : {uint64_t{0}, ReportLedger::kAhead + 2, uint64_t{1} << 60, ~uint64_t{0}})
    ranks[0]->SayBytes(wire::Encode(kJob, header, wire::RankReport{step, 0.5, {1, 2}}));
  ranks[0]->SayBytes(wire::Encode(kJob, header, wire::RankReport{1, 0.5, {1, 2}}));
  ASSERT_TRUE(Until([&] { return controller->refused_frames() == 4 && controller->reports().newest() == Step(1); }));
  EXPECT_EQ(controller->reports().refused(), 4u);
}

TEST_F(LyingPeer, AFloodOfDroppedMessagesIsCountedAndNotWritten) {
  core::Header header = ranks[0]->header();
  for (uint64_t times = 0; times < 500; ++times) {  // the same one again is not even a line
    header.generation = Generation(9 + times);
    ranks[0]->Say(header, core::Finished{Step(5)});
  }
  ASSERT_TRUE(Until([&] { return controller->core().dropped_messages() >= 500; }));
  EXPECT_GE(notices.size(), 20u);
  EXPECT_LE(notices.size(), 3 * (LineBudget::kLinesPerWindow + 1));
}

// A controller that takes a run over lets new processes wait for its answer.
TEST(WaitingJoin, IsOfOneRank) {
  struct Host final : ControllerHost {
    void Spawn(Rank, Incarnation) override {}
    void Kill(Rank, Incarnation, const std::string&) override {}
    void OnTransition(const core::Transition&) override {}
    void OnIncident(const core::IncidentRecord&) override {}
    void OnNotice(Rank, const std::string&) override {}
    void OnEnded(const core::RunEnded&) override {}
  } host;
  net::Loop loop;
  const auto secret = net::NewSecret();
  const auto log = std::make_shared<MemoryLogSink>();
  ControllerOptions options;
  options.job = kJob;
  options.policy.world_size = 2;
  options.policy.takes_over = true;
  options.policy.silence = std::chrono::seconds(10);
  Controller controller(loop.io(), options, secret, host, log);
  ASSERT_TRUE(controller.Listen().ok());
  controller.Start();

  Peer peer(loop, controller.port(), secret);
  peer.Say({{}, {}, Rank(0), Incarnation(1)}, core::JoinRequest{100, "here", false});
  peer.Say({{}, {}, Rank(1), Incarnation(1)}, core::JoinRequest{100, "here", false});
  ASSERT_TRUE(loop.RunUntil([&] { return peer.ended(); }));
  EXPECT_EQ(controller.refused_frames(), 1u);
  EXPECT_THAT(log->lines(), ::testing::Contains(::testing::HasSubstr("joins twice: as rank 0, and as rank 1")));
  EXPECT_FALSE(controller.core().members()[1].held_back);
}

}  // namespace
}  // namespace kintsugi
