// SparePool with processes that sleep: their pages are made to say what the test wants.
#include "runtime/launcher/workers/spare_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class SparePoolTest : public testing::Test {
 protected:
  struct Started {
    std::shared_ptr<Seat> seat;
    SharedPage page;  // its own mapping, as the process has one
    UniqueFd channel;
    pid_t pid;
  };

  void Make(int wanted) {
    const auto launch = [this](std::shared_ptr<Seat> seat, int page_fd,
                               int spare_fd) -> Result<std::unique_ptr<ChildProcess>> {
      if (refuse_) return Status(StatusCode::kResourceExhausted, "no process left");
      ChildProcess::Callbacks callbacks;
      callbacks.on_exit = [this, seat](const ExitCause& cause) { pool_->OnExit(seat.get(), cause); };
      KINTSUGI_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child,
                                ChildProcess::Spawn(io_, {.program = "/bin/sleep", .args = {"1000"}}, callbacks));
      started_.push_back({seat, SharedPage::Open(page_fd).value(), UniqueFd(dup(spare_fd)), child->pid()});
      return child;
    };
    pool_.emplace(wanted, launch, NullLogSink());
    pool_->OnRankStarted(now_);
  }
  void Beat(size_t i) { started_[i].page.words().beat_ns = static_cast<uint64_t>(now_.nanoseconds()); }
  // Until so many ends have been told.
  void RunUntil(const std::function<bool()>& done) {
    for (int turn = 0; turn < 1000 && !done(); ++turn) io_.restart(), io_.run_for(10ms);
    ASSERT_TRUE(done());
  }

  boost::asio::io_context io_;
  std::vector<Started> started_;
  std::optional<SparePool> pool_;
  TimePoint now_ = SteadyClock::SteadyNow();
  bool refuse_ = false;
};

TEST_F(SparePoolTest, StartsOneAtATimeUpToWhatIsWanted) {
  Make(2);
  pool_->Poll(false, now_);
  EXPECT_EQ(started_.size(), 0u);
  pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), 1u);
  for (int i = 0; i < 5; ++i) pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(SparePoolTest, OneWaitsFromItsFirstBeatOnAndWhileItBeats) {
  Make(1);
  pool_->Poll(true, now_);
  EXPECT_EQ(pool_->waiting(now_), 0) << "still on its way";
  EXPECT_FALSE(pool_->Take({Rank(1), Incarnation(2)}, now_));
  Beat(0);
  EXPECT_EQ(pool_->waiting(now_), 1);
  EXPECT_EQ(pool_->waiting(now_ + 10s), 0) << "frozen";
  EXPECT_FALSE(pool_->Take({Rank(1), Incarnation(2)}, now_ + 10s));
}

TEST_F(SparePoolTest, TheTakenOneKnowsItsPlaceAndIsNoSpareAnyMore) {
  Make(2);
  pool_->Poll(true, now_);
  pool_->Poll(true, now_);
  Beat(0);
  Beat(1);
  const std::optional<Spare> taken = pool_->Take({Rank(5), Incarnation(7)}, now_);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->child->pid(), started_[0].pid) << "the one that has waited longest";
  const RankIncarnation who = AwaitRank(started_[0].channel.get()).value();
  EXPECT_EQ(who.rank, Rank(5));
  EXPECT_EQ(who.incarnation, Incarnation(7));
  EXPECT_EQ(started_[0].seat->who->rank, Rank(5));
  EXPECT_EQ(pool_->waiting(now_), 1);
  pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), 3u) << "another one is started";
}

TEST_F(SparePoolTest, ADeadOneIsReplacedAFewTimes) {
  Make(1);
  for (size_t death = 0; death < SpareStartPolicy::kDeathsMax; ++death) {
    pool_->Poll(true, now_);
    ASSERT_EQ(started_.size(), death + 1);
    Beat(death);
    kill(started_[death].pid, SIGKILL);
    RunUntil([&] { return pool_->waiting(now_) == 0; });
  }
  pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), static_cast<size_t>(SpareStartPolicy::kDeathsMax));
}

TEST_F(SparePoolTest, WhatCannotBeStartedIsGivenUp) {
  Make(1);
  refuse_ = true;
  for (int i = 0; i < SpareStartPolicy::kDeathsMax; ++i) pool_->Poll(true, now_);
  refuse_ = false;
  pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), 0u);
}

TEST_F(SparePoolTest, ASilentOneIsEndedAndReplaced) {
  Make(1);
  pool_->Poll(true, now_);
  Beat(0);
  const pid_t first = started_[0].pid;
  now_ = now_ + 40s;
  pool_->Poll(true, now_);
  RunUntil([&] {
    pool_->Poll(true, now_);
    return started_.size() == 2;
  });
  EXPECT_NE(kill(first, 0), 0);
}

TEST_F(SparePoolTest, TheEndLeavesNobody) {
  Make(2);
  pool_->Poll(true, now_);
  pool_->Poll(true, now_);
  pool_->End();
  for (const Started& spare : started_) EXPECT_NE(kill(spare.pid, 0), 0);
  pool_->Poll(true, now_);
  EXPECT_EQ(started_.size(), 2u);
}

}  // namespace
}  // namespace kintsugi
