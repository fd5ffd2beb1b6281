// The processes of a host's ranks, as real ones: how they are started, replaced and ended, what is told of each and in
// which order, and that nothing is left behind.
#include "runtime/launcher/workers/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

constexpr const char* kSleeps = "exec sleep 1000";

class Pool : public ::testing::Test, protected WorkerEvents {
 protected:
  WorkerPoolOptions Options(const std::string& script) {
    WorkerPoolOptions options;
    options.job = "job";
    options.program = "/bin/sh";
    options.args = {"-c", script};
    options.environment = {{"HERE", folder.path()}};
    options.world_size = 4;
    options.first_rank = Rank(2);
    options.local_ranks = 2;
    options.node_rank = 1;
    options.show_output = false;
    return options;
  }
  void Open(const std::string& script) { Open(Options(script)); }
  void Open(WorkerPoolOptions options) {
    const Status up = pool.SetUp(std::move(options), *secret);
    ASSERT_TRUE(up.ok()) << up.ToString();
  }
  // Until it is so.
  void Run(const std::function<bool()>& done) {
    for (int turn = 0; turn < 6000 && !done(); ++turn) {
      io.restart();
      io.run_for(5ms);
      pool.Poll();
    }
    ASSERT_TRUE(done()) << "it does not come about";
  }
  void AwaitEnds(size_t count) {
    Run([&] { return ends.size() >= count; });
  }
  void AwaitFile(const std::string& name) {
    Run([&] { return std::filesystem::exists(folder / name); });
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int Logged(const std::string& event) const {
    return static_cast<int>(std::count_if(log->lines.begin(), log->lines.end(), [&](const std::string& line) {
      return line.find("event=" + event) != std::string::npos;
    }));
  }

  static std::string Name(Rank rank, Incarnation life) { return rank.ToString() + "." + life.ToString(); }
  void OnStarting(Rank rank, Incarnation life, std::vector<std::string> armed) override {
    told.push_back("starts " + Name(rank, life));
    for (const std::string& fault : armed) told.push_back("armed " + fault);
  }
  void OnPage(Rank, Incarnation, const PageView&) override {}
  void OnReport(Rank, const StepReport&) override {}
  void OnFired(const Injection&, TimePoint) override {}
  void OnHeld(Rank, const std::optional<core::HeldState>& held) override {
    EXPECT_FALSE(held) << "nothing was offered";
  }
  void OnExited(Rank rank, Incarnation life, const WorkerEnd& end) override {
    told.push_back("ended " + Name(rank, life));
    ends.push_back(end);
    if (on_end) on_end();
  }
  void OnSpares(int waiting) override { spares = waiting; }
  void OnIdle() override { ++idle; }

  TemporaryFolder folder;
  std::vector<std::string> told;
  std::vector<WorkerEnd> ends;
  std::function<void()> on_end;
  int idle = 0, spares = 0;
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  std::shared_ptr<const net::Secret> secret = net::Secret::Generate().value();
  WorkerPool pool{io, *this, log};
};

TEST_F(Pool, TellsHowAProcessLeft) {
  Open("exit 3");
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitEnds(1);
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1"));
  EXPECT_THAT(ends[0].cause, HasSubstr("exited with code 3"));
  EXPECT_EQ(ends[0].code, 3);
  EXPECT_TRUE(ends[0].failed());
  EXPECT_FALSE(pool.running());
  Run([&] { return idle > 0; });
}

TEST_F(Pool, GivesAProcessItsPlace) {
  Open("echo $RANK $LOCAL_RANK $WORLD_SIZE $NODE_RANK $KINTSUGI_INCARNATION > $HERE/part; mv $HERE/part $HERE/place");
  pool.Spawn(Rank(3), Incarnation(5));
  AwaitEnds(1);
  EXPECT_EQ(Text("place"), "3 1 4 1 5\n");
  EXPECT_EQ(ends[0].code, 0);
  EXPECT_FALSE(ends[0].failed());
}

TEST_F(Pool, TellsWhatEndedAProcessAndWhy) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Kill(Rank(2), Incarnation(1), "it was silent");
  AwaitEnds(1);
  EXPECT_THAT(ends[0].cause, AllOf(HasSubstr("SIGKILL"), HasSubstr("(it was silent)")));
  EXPECT_EQ(ends[0].code, std::nullopt) << "it did not leave by itself";
}

TEST_F(Pool, KillsTheLifeThatIsMeantAndNoOther) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(2));
  pool.Spawn(Rank(3), Incarnation(1));
  pool.Kill(Rank(2), Incarnation(1), "late word of the one before");
  pool.Kill(Rank(7), Incarnation(1), "another host's");
  pool.Kill(Rank(3), Incarnation(1), "meant");
  AwaitEnds(1);
  EXPECT_EQ(told.back(), "ended 3.1");
  ASSERT_THAT(pool.Lives(), SizeIs(1));
  EXPECT_EQ(pool.Lives()[0].rank, Rank(2));
  EXPECT_EQ(pool.Lives()[0].incarnation, Incarnation(2));
}

TEST_F(Pool, ReapsAVictimBeforeItsSuccessorStarts) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Spawn(Rank(2), Incarnation(2));
  EXPECT_THAT(pool.Lives(), IsEmpty()) << "the first is going, the second is not there";
  EXPECT_TRUE(pool.running());
  Run([&] { return told.size() == 3; });
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1", "starts 2.2"));
  EXPECT_THAT(pool.Lives(), SizeIs(1));
}

TEST_F(Pool, StartsTheNewestOfThoseThatWereWanted) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Spawn(Rank(2), Incarnation(2));
  pool.Spawn(Rank(2), Incarnation(3));
  Run([&] { return told.size() == 3; });
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1", "starts 2.3"));
}

TEST_F(Pool, StartsTheNextOneFromWithinTheWordOfAnEnd) {
  Open("[ $KINTSUGI_INCARNATION = 1 ] && exit 1; exec sleep 1000");
  on_end = [this] {
    on_end = nullptr;
    pool.Spawn(Rank(2), Incarnation(2));
  };
  pool.Spawn(Rank(2), Incarnation(1));
  Run([&] { return told.size() == 3; });
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1", "starts 2.2"));
  EXPECT_TRUE(pool.running());
}

// Or nobody has reaped it yet: it writes nothing any more.
bool HasEnded(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  return !std::getline(file, stat) || stat.find(") Z") != std::string::npos;
}

TEST_F(Pool, EndsWhatAProcessLeftBehindBeforeItsEndIsTold) {
  Open("setsid sleep 1000 & echo $! > $HERE/part; mv $HERE/part $HERE/left; exec sleep 1000");
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitFile("left");
  const pid_t left = std::stoi(Text("left"));
  ASSERT_EQ(kill(left, 0), 0);
  bool gone = false;
  on_end = [&] { gone = HasEnded(left); };
  pool.Kill(Rank(2), Incarnation(1), "");
  AwaitEnds(1);
  EXPECT_TRUE(gone) << "its successor maps what that one might still write";
}

TEST_F(Pool, TellsOfWhatCannotBeStartedAsOfAnEnd) {
  WorkerPoolOptions options = Options("");
  options.program = folder / "no such program";
  Open(options);
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitEnds(1);
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1"));
  EXPECT_THAT(ends[0].cause, AllOf(HasSubstr("could not be started"), HasSubstr("no such program")));
  EXPECT_FALSE(pool.running());
}

TEST_F(Pool, StartsNothingAnyMoreOnceTheRunLeaves) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Spawn(Rank(2), Incarnation(2));
  pool.Leave();
  pool.Spawn(Rank(3), Incarnation(1));
  AwaitEnds(1);
  Run([&] { return idle > 0; });
  EXPECT_THAT(told, ElementsAre("starts 2.1", "ended 2.1"));
}

TEST_F(Pool, LeavesProcessesTheirTimeUntilAllAreKilled) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Spawn(Rank(3), Incarnation(1));
  pool.Leave();
  pool.Poll();
  EXPECT_TRUE(pool.running()) << "who leaves may have more to do";
  pool.KillAll();
  AwaitEnds(2);
  EXPECT_FALSE(pool.running());
}

TEST_F(Pool, HandsAFaultToEachLifeUntilItHasStruck) {
  Open("exit 1");
  ASSERT_TRUE(pool.Arm(ParseInjection("kill:2@5").value()).ok());
  ASSERT_TRUE(pool.Arm(ParseInjection("kill:3@5").value()).ok());
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitEnds(1);
  pool.Spawn(Rank(2), Incarnation(2));
  AwaitEnds(2);
  EXPECT_THAT(told, ElementsAre("starts 2.1", HasSubstr("armed 0 kill:2@5"), "ended 2.1", "starts 2.2",
                                HasSubstr("armed 0 kill:2@5"), "ended 2.2"));
  EXPECT_THAT(ends[1].not_struck, ElementsAre(HasSubstr("kill:2@5"))) << "its process failed before";
}

TEST_F(Pool, EndsAProcessThatIsStoppedBeforeItHasJoined) {
  WorkerPoolOptions options = Options("kill -STOP $$");
  options.silence = 40ms;
  Open(options);
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitEnds(1);
  EXPECT_THAT(ends[0].cause, AllOf(HasSubstr("SIGKILL"), HasSubstr("no sign of life for 50 ms")));
}

TEST_F(Pool, GivesAProcessTimeThatIsOnItsWay) {
  WorkerPoolOptions options = Options("sleep 0.3; exit 0");
  options.silence = 10ms;
  Open(options);
  pool.Spawn(Rank(2), Incarnation(1));
  AwaitEnds(1);
  EXPECT_EQ(ends[0].code, 0) << "it is no sign of anything that it does not beat yet";
}

TEST_F(Pool, EndsWhatRunsOfRanksThatItGivesUp) {
  Open(kSleeps);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Spawn(Rank(3), Incarnation(1));
  pool.Spawn(Rank(3), Incarnation(2));
  pool.GiveBlockUp("another node has them");
  AwaitEnds(2);
  EXPECT_THAT(ends[0].cause, HasSubstr("another node has them"));
  Run([&] { return idle > 0; });
  EXPECT_THAT(told, Not(::testing::Contains("starts 3.2"))) << "they are started elsewhere";
}

TEST_F(Pool, StartsRanksOfABlockThatItTakes) {
  WorkerPoolOptions options = Options("echo $RANK $LOCAL_RANK $NODE_RANK > $HERE/part; mv $HERE/part $HERE/place");
  options.has_ranks = false;
  options.program = "/bin/sh";
  options.local_ranks = 2;
  Open(options);
  pool.TakeBlock(0);
  pool.Spawn(Rank(1), Incarnation(4));
  AwaitEnds(1);
  EXPECT_THAT(told, ElementsAre("starts 1.4", "ended 1.4"));
  EXPECT_EQ(Text("place"), "1 1 0\n");
}

TEST_F(Pool, StartsASpareOnceItsRanksComputeAndNotBefore) {
  WorkerPoolOptions options = Options(kSleeps);
  options.spares = 1;
  Open(options);
  pool.Spawn(Rank(2), Incarnation(1));
  pool.Poll();
  EXPECT_EQ(Logged("spare_started"), 0) << "it would take time from those that begin";
  EXPECT_EQ(pool.spares_waiting(), 0);
}

TEST_F(Pool, LeavesNothingBehindWithItsEnd) {
  pid_t left = 0;
  {
    WorkerPool own{io, *this, log};
    ASSERT_TRUE(own.SetUp(Options("echo $$ > $HERE/part; mv $HERE/part $HERE/pid; exec sleep 1000"), *secret).ok());
    own.Spawn(Rank(2), Incarnation(1));
    for (int turn = 0; turn < 2000 && !std::filesystem::exists(folder / "pid"); ++turn) {
      io.restart();
      io.run_for(5ms);
    }
    ASSERT_TRUE(std::filesystem::exists(folder / "pid"));
    left = std::stoi(Text("pid"));
    ASSERT_EQ(kill(left, 0), 0);
  }
  EXPECT_NE(kill(left, 0), 0);
  EXPECT_THAT(ends, IsEmpty()) << "nobody is told";
}

}  // namespace
}  // namespace kintsugi
