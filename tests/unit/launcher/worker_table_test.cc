// WorkerTable with processes that sleep.
#include "runtime/launcher/workers/worker_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <csignal>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

class WorkerTableTest : public testing::Test {
 protected:
  Worker& Start(Rank rank, Incarnation incarnation) {
    Worker& worker = table_[rank];
    worker.incarnation = incarnation;
    worker.Give(SharedPage::Create().value());
    worker.child = ChildProcess::Spawn(io_, {.program = "/bin/sleep", .args = {"1000"}}, {}).value();
    return worker;
  }
  void End(Worker& worker) {
    ASSERT_TRUE(worker.child->Kill(SIGKILL).ok());
    for (int turn = 0; turn < 2000 && worker.child->running(); ++turn) io_.restart(), io_.run_for(10ms);
    ASSERT_FALSE(worker.child->running());
  }
  std::vector<Rank> Living() const {
    std::vector<Rank> living;
    for (const WorkerTable::Life& life : table_.Lives()) living.push_back(life.rank);
    return living;
  }

  boost::asio::io_context io_;
  WorkerTable table_;
};

TEST_F(WorkerTableTest, FindsALifeAndNoOther) {
  Start(Rank(2), Incarnation(3));
  EXPECT_NE(table_.Find({Rank(2), Incarnation(3)}), nullptr);
  EXPECT_EQ(table_.Find({Rank(2), Incarnation(2)}), nullptr);
  EXPECT_EQ(table_.Find(Rank(1)), nullptr);
}

TEST_F(WorkerTableTest, WhoIsBeingReapedRunsAndIsNotLostToItsSuccessor) {
  Worker& worker = Start(Rank(0), Incarnation(1));
  const pid_t pid = worker.child->pid();
  EXPECT_EQ(table_.RankOf(pid), Rank(0));
  worker.reaping = true;
  End(worker);
  EXPECT_TRUE(table_.running());
  EXPECT_TRUE(table_.Has(pid));
  EXPECT_EQ(table_.RankOf(pid), std::nullopt);
  worker.reaping = false;
  EXPECT_FALSE(table_.running());
  EXPECT_THAT(Living(), testing::IsEmpty());
}

TEST_F(WorkerTableTest, WhoIsBeingReplacedIsNotToldOfAsLiving) {
  Start(Rank(0), Incarnation(1));
  Start(Rank(1), Incarnation(1)).next = Incarnation(2);
  EXPECT_THAT(Living(), testing::ElementsAre(Rank(0)));
}

TEST_F(WorkerTableTest, AllComputeOnceAllAreInAStep) {
  Worker& first = Start(Rank(0), Incarnation(1));
  Worker& second = Start(Rank(1), Incarnation(1));
  first.words().progress = PackProgress(1, TrainPhase::kForward);
  EXPECT_FALSE(table_.AllCompute());
  second.words().progress = PackProgress(1, TrainPhase::kForward);
  EXPECT_TRUE(table_.AllCompute());
  End(second);
  EXPECT_FALSE(table_.AllCompute());
}

TEST_F(WorkerTableTest, WhatHasEndedIsDroppedAndWhatRunsStays) {
  Start(Rank(0), Incarnation(1));
  End(Start(Rank(1), Incarnation(1)));
  table_.DropEnded();
  EXPECT_NE(table_.Find(Rank(0)), nullptr);
  EXPECT_EQ(table_.Find(Rank(1)), nullptr);
}

TEST_F(WorkerTableTest, APageOfAProcessThatNeverBeganIsAFailedCheck) {
  EXPECT_THROW(table_[Rank(0)].words(), CheckFailure);
}

}  // namespace
}  // namespace kintsugi
