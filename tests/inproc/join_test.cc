// What Join answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "runtime/process/spare_channel.h"
#include "tests/inproc/world.h"

namespace kintsugi::inproc {
namespace {

class Joining : public testing::Test {
 protected:
  World world_;
  AgentOptions options_ = world_.OptionsOf(0, world_.controller_port());
};

TEST_F(Joining, IsToldItsIncarnationAndThatTheRunIsFresh) {
  auto agent = kintsugi::Join(options_);
  ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  EXPECT_EQ((*agent)->incarnation(), Incarnation(1));
  EXPECT_EQ((*agent)->join_kind(), JoinKind::kFresh);
  EXPECT_EQ((*agent)->exit_code(), 1) << "a process that never ran has not succeeded";
}

TEST_F(Joining, WithAnotherSecretIsDenied) {
  auto secret = net::Secret::Generate();
  ASSERT_TRUE(secret.ok());
  auto fd = (*secret)->ToFd();
  ASSERT_TRUE(fd.ok());
  options_.secret_fd = *fd;
  EXPECT_EQ(kintsugi::Join(options_).status().code(), StatusCode::kPermissionDenied);
  close(*fd);
}

TEST_F(Joining, OfAnotherJobIsRefused) {
  options_.job = "somebody-elses";
  EXPECT_EQ(kintsugi::Join(options_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Joining, WithoutAControllerEndsAtItsDeadline) {
  world_.StopController();
  options_.join_timeout = std::chrono::milliseconds(300);
  const Status status = kintsugi::Join(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.ToString();
}

TEST_F(Joining, AsAnOlderIncarnationIsRefusedAndHarmsNobody) {
  options_.incarnation = Incarnation(5);
  auto living = kintsugi::Join(options_);
  ASSERT_TRUE(living.ok()) << living.status().ToString();
  options_.incarnation = Incarnation(3);
  const Status refused = kintsugi::Join(options_).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("the living one is 5"), std::string::npos) << refused.ToString();
  EXPECT_TRUE(world_.OnController([&] { return world_.controller().core().members()[0].connected; }));
}

TEST_F(Joining, NamesEachFieldThatIsWrong) {
  const auto refused = [&](auto change) {
    AgentOptions options = options_;
    change(options);
    return kintsugi::Join(options).status();
  };
  EXPECT_EQ(refused([](AgentOptions& o) { o.rank = Rank(4); }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused([](AgentOptions& o) { o.rank = Rank(-1); }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused([](AgentOptions& o) { o.controller_port = 0; }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused([](AgentOptions& o) { o.job.clear(); }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused([](AgentOptions& o) { o.secret_fd = -1; }).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(refused([](AgentOptions& o) { o.page_fd = o.secret_fd; }).ok()) << "a secret is no page";
}

TEST_F(Joining, ASpareWaitsForItsPlaceAndJoinsAsThat) {
  SpareChannel channel = SpareChannel::Create().value();
  options_.spare_fd = dup(channel.spare_end());
  channel.CloseSpareEnd();
  options_.join_timeout = std::chrono::milliseconds(300);  // is for joining, not for waiting
  auto joined = std::async(std::launch::async, [&] { return kintsugi::Join(options_); });
  EXPECT_EQ(joined.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  EXPECT_FALSE(world_.OnController([&] { return world_.controller().core().members()[2].connected; }));
  ASSERT_TRUE(channel.Give({Rank(2), Incarnation(4)}).ok());
  auto agent = joined.get();
  ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  EXPECT_EQ((*agent)->rank(), Rank(2));
  EXPECT_EQ((*agent)->incarnation(), Incarnation(4));
  EXPECT_TRUE(world_.OnController([&] { return world_.controller().core().members()[2].connected; }));
}

TEST_F(Joining, ASpareThatNobodyNeedsIsToldSo) {
  auto channel = std::make_unique<SpareChannel>(SpareChannel::Create().value());
  options_.spare_fd = dup(channel->spare_end());
  channel.reset();
  EXPECT_EQ(kintsugi::Join(options_).status().code(), StatusCode::kEnded);
}

TEST_F(Joining, ASpareRefusesAPlaceOutsideTheWorld) {
  SpareChannel channel = SpareChannel::Create().value();
  options_.spare_fd = dup(channel.spare_end());
  ASSERT_TRUE(channel.Give({Rank(4), Incarnation(1)}).ok());
  EXPECT_EQ(kintsugi::Join(options_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Joining, AnAgentThatNeverRunsCanBeDestroyedAtAnyMoment) {
  for (int i = 0; i < 20; ++i) {
    auto agent = kintsugi::Join(options_);
    ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  }
}

}  // namespace
}  // namespace kintsugi::inproc
