// How one rank's process comes to its end, and what its page says, with processes that sleep and pages that say what the
// test wants.
#include "runtime/launcher/workers/worker_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <csignal>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class WorkersEnd : public ::testing::Test, private WorkerEvents {
 protected:
  void SetUp() override {
    guard.Know([this](pid_t pid) { return table.Has(pid); });
  }
  // As the starter leaves it.
  Worker& Start(Rank rank, Incarnation incarnation = Incarnation(1)) {
    Worker& worker = table[rank];
    worker.incarnation = incarnation;
    worker.life = "KINTSUGI_TEST_LIFE=" + rank.ToString() + "." + incarnation.ToString();
    worker.Give(SharedPage::Create().value());
    ChildProcess::Callbacks callbacks;
    callbacks.on_exit = [this, rank, incarnation](const ExitCause& cause) {
      ends.OnProcessEnd({rank, incarnation}, cause);
    };
    callbacks.on_output_end = [this, rank] { ends.OnOutputEnd(rank); };
    worker.child = ChildProcess::Spawn(io, {.program = "/bin/sleep", .args = {"1000"}}, callbacks).value();
    return worker;
  }
  void AwaitEnds(size_t count) {
    for (int turn = 0; turn < 3000 && exits.size() < count; ++turn) {
      io.restart();
      io.run_for(5ms);
    }
    ASSERT_EQ(exits.size(), count);
  }
  // Of this rank, as its own process would.
  static void Report(Worker& worker, uint64_t step) {
    ASSERT_TRUE(ReportWriter(worker.words().reports).Publish(step, 0.5, {}));
  }

  void OnStarting(Rank, Incarnation, std::vector<std::string>) override {}
  void OnPage(Rank rank, Incarnation life, const PageView& page) override {
    told.push_back("page " + rank.ToString() + "." + life.ToString());
    pages.push_back(page);
  }
  void OnReport(Rank rank, const StepReport& report) override {
    told.push_back("report " + rank.ToString() + " of " + std::to_string(report.step));
  }
  void OnFired(const Injection& injection, TimePoint at) override {
    told.push_back("fired " + ToString(injection) + " at " + std::to_string(at.nanoseconds()));
  }
  void OnHeld(Rank rank, const std::optional<core::HeldState>&) override { told.push_back("held " + rank.ToString()); }
  void OnExited(Rank rank, Incarnation life, const WorkerEnd& end) override {
    told.push_back("ended " + rank.ToString() + "." + life.ToString());
    exits.push_back(end);
  }
  void OnSpares(int) override {}
  void OnIdle() override { ++idle; }

  std::vector<std::string> told;
  std::vector<PageView> pages;
  std::vector<WorkerEnd> exits;
  int idle = 0;
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  WorkerPoolOptions options;
  WorkerTable table;
  Ledger ledger;
  WorkerOutput output{options};
  WorkerGuard guard{log};
  DeviceGuard devices{io, log};
  JoiningWatch joining;
  WorkerPages pages_of{*this, table, ledger};
  WorkerStarter starter{io, {options, table, output, guard}, *this, ledger, devices, joining, log};
  WorkerEnds ends{io, {options, table, output, guard}, *this, pages_of, starter, log};
};

TEST_F(WorkersEnd, TellWhatIsLeftInThePageBeforeTheEnd) {
  Worker& worker = Start(Rank(0));
  worker.words().beat = 7;
  worker.words().gate_word = 11;
  worker.words().progress = PackProgress(5, TrainPhase::kUpdate);
  Report(worker, 4);
  ASSERT_TRUE(worker.child->Kill(SIGKILL).ok());
  AwaitEnds(1);
  EXPECT_THAT(told, ElementsAre("report 0 of 4", "page 0.1", "held 0", "ended 0.1"));
  EXPECT_EQ(pages[0].beat, 7u) << "it may have committed a microsecond before it died";
  EXPECT_EQ(pages[0].gate_word, 11u);
  EXPECT_EQ(UnpackProgress(pages[0].progress).step, 5u);
}

TEST_F(WorkersEnd, KnowTheInstantOfAnInjectedFaultUnlessTheTrainerWentOnFromThere) {
  Worker& struck = Start(Rank(0));
  struck.words().progress_ns = 100;
  struck.words().fault_ns = 200;
  Worker& went_on = Start(Rank(1));
  went_on.words().fault_ns = 200;
  went_on.words().progress_ns = 300;
  ASSERT_TRUE(struck.child->Kill(SIGKILL).ok());
  AwaitEnds(1);
  EXPECT_EQ(exits[0].since, TimePoint(Duration(200)));
  ASSERT_TRUE(went_on.child->Kill(SIGKILL).ok());
  AwaitEnds(2);
  EXPECT_EQ(exits[1].since, std::nullopt) << "what happens later is no fault of the injector's";
}

TEST_F(WorkersEnd, LogWhereALivingProcessStoodBeforeItIsKilled) {
  Worker& living = Start(Rank(0));
  living.words().beat_ns = static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds());
  ends.Kill({Rank(0), Incarnation(1)}, "it hangs");
  AwaitEnds(1);
  EXPECT_THAT(log->lines, Contains(AnyOf(HasSubstr("event=stack"), HasSubstr("event=no_stack"))));
  log->lines.clear();
  (void)Start(Rank(1));
  ends.Kill({Rank(1), Incarnation(1)}, "it was silent");
  AwaitEnds(2);
  EXPECT_THAT(log->lines, Not(Contains(HasSubstr("stack")))) << "one that gives no sign of life is asked nothing";
  EXPECT_THAT(exits[1].cause, HasSubstr("(it was silent)"));
}

TEST_F(WorkersEnd, AreNotHeldUpForStacksOnceTheRunLeaves) {
  Worker& living = Start(Rank(0));
  living.words().beat_ns = static_cast<uint64_t>(SteadyClock::SteadyNow().nanoseconds());
  table.Leave();
  ends.Kill({Rank(0), Incarnation(1)}, "it is late");
  EXPECT_EQ(living.stacks, nullptr);
  AwaitEnds(1);
}

TEST_F(WorkersEnd, OfADeviceNameItAndLeaveNoStateOnIt) {
  (void)Start(Rank(0));
  ends.KillAtOnce(Rank(0), "device 0: Xid 94");
  ends.KillAtOnce(Rank(5), "nobody is there");
  AwaitEnds(1);
  EXPECT_THAT(exits[0].cause, AllOf(HasSubstr("SIGKILL"), HasSubstr("(device 0: Xid 94)")));
}

TEST_F(WorkersEnd, OfASpareNodesProcessHoldNothing) {
  options.has_ranks = false;
  Worker& worker = Start(Rank(0));
  ASSERT_TRUE(worker.child->Kill(SIGKILL).ok());
  AwaitEnds(1);
  EXPECT_THAT(told, ElementsAre("page 0.1", "ended 0.1")) << "its ranks are another node's";
}

TEST_F(WorkersEnd, OfTheLastAreFollowedByIdleness) {
  Worker& first = Start(Rank(0));
  Worker& second = Start(Rank(1));
  ASSERT_TRUE(first.child->Kill(SIGKILL).ok());
  AwaitEnds(1);
  EXPECT_EQ(idle, 0);
  ASSERT_TRUE(second.child->Kill(SIGKILL).ok());
  AwaitEnds(2);
  EXPECT_GE(idle, 1);
}

// ---- pages -----------------------------------------------------------------------------------------------------------

TEST_F(WorkersEnd, PagesTellReportsOnceAndAgainWhenAnotherLeaderAsks) {
  Worker& worker = Start(Rank(0));
  Report(worker, 1);
  Report(worker, 2);
  pages_of.ReadRunning();
  pages_of.ReadRunning();
  EXPECT_THAT(told, ElementsAre("report 0 of 1", "report 0 of 2", "page 0.1", "page 0.1"));
  told.clear();
  pages_of.TellReportsAgain();
  EXPECT_THAT(told, ElementsAre("report 0 of 1", "report 0 of 2", "page 0.1"))
      << "the leader that was told may not have got them";
}

TEST_F(WorkersEnd, PagesTellOfAFaultOnceInARun) {
  ASSERT_TRUE(ledger.Add(ParseInjection("kill:0@5").value()).ok());
  ASSERT_TRUE(ledger.Add(ParseInjection("exit:0@6").value()).ok());
  ASSERT_TRUE(ledger.Add(ParseInjection("kill:1@5").value()).ok());
  Worker& worker = Start(Rank(0));
  EXPECT_THAT(pages_of.NotStruck(Rank(0)), SizeIs(2));
  worker.words().fault_ns = 1234;
  worker.words().fired_injections = 0b101;  // the third is another rank's: a page may hold anything
  pages_of.ReadRunning();
  pages_of.ReadRunning();
  EXPECT_THAT(told, ElementsAre("fired kill:0@5:forward at 1234", "page 0.1", "page 0.1"));
  EXPECT_THAT(pages_of.NotStruck(Rank(0)), ElementsAre(HasSubstr("exit:0@6")));
  EXPECT_THAT(pages_of.NotStruck(Rank(1)), SizeIs(1));
}

TEST_F(WorkersEnd, PagesOfThoseThatHaveEndedAreReadNoMore) {
  Worker& worker = Start(Rank(0));
  ASSERT_TRUE(worker.child->Kill(SIGKILL).ok());
  AwaitEnds(1);
  told.clear();
  pages_of.ReadRunning();
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace kintsugi
