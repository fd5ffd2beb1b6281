// The process that forks others: when it is started, what it says of itself, and that ranks start without it where it cannot.
#include "runtime/launcher/workers/warm_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class Warm : public ::testing::Test {
 protected:
  // `first`: told what to load, so that the first processes wait for it.
  void Make(bool first) {
    const auto launch = [this](int server_fd, int) -> Result<std::unique_ptr<ChildProcess>> {
      if (refuses) return Status(StatusCode::kResourceExhausted, "no process left");
      ++launched;
      its_end = UniqueFd(dup(server_fd));
      ChildProcess::Callbacks callbacks;
      callbacks.on_exit = [this](const ExitCause& cause) { warm->OnExit(cause); };
      auto child = ChildProcess::Spawn(io, {.program = "/bin/sleep", .args = {"1000"}}, callbacks);
      if (child.ok()) pid = (*child)->pid();
      return child;
    };
    warm = WarmProcess::Create(first, launch, log).value();
  }
  void Say(const std::string& text) {
    ASSERT_EQ(send(its_end.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // A rank has said what the program loads.
  void List() { ASSERT_EQ(write(warm->list_fd(), "numpy\n", 6), 6); }
  void Poll(bool computing = true) { warm->Poll(computing, now); }
  void AwaitDeath() {
    for (int turn = 0; turn < 3000 && warm->Is(pid); ++turn) {
      io.restart();
      io.run_for(5ms);
    }
    ASSERT_FALSE(warm->Is(pid));
  }
  void Kill() {
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    AwaitDeath();
  }

  int launched = 0;
  bool refuses = false;
  pid_t pid = 0;
  UniqueFd its_end;
  TimePoint now = SteadyClock::SteadyNow();
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  std::unique_ptr<WarmProcess> warm;
};

TEST_F(Warm, StartsOnceRanksHaveSaidWhatTheyLoadAndCompute) {
  Make(false);
  warm->OnRankStarted(now);
  EXPECT_FALSE(warm->is_awaited());
  Poll();
  EXPECT_EQ(launched, 0) << "nobody knows yet what to load";
  List();
  Poll(false);
  EXPECT_EQ(launched, 0) << "it would take time from those that begin";
  Poll();
  EXPECT_EQ(launched, 1);
  Poll();
  EXPECT_EQ(launched, 1);
  EXPECT_EQ(warm->server(), nullptr) << "it loads";
  Say("ready");
  Poll();
  EXPECT_NE(warm->server(), nullptr);
  EXPECT_THAT(log->lines, Contains(HasSubstr("event=warm_ready")));
}

TEST_F(Warm, IsWaitedForByTheFirstProcessesWhereItWasToldWhatToLoad) {
  Make(true);
  EXPECT_TRUE(warm->is_awaited());
  Poll(false);
  EXPECT_EQ(launched, 1);
  EXPECT_TRUE(warm->is_awaited());
  Say("ready");
  Poll(false);
  EXPECT_FALSE(warm->is_awaited());
  EXPECT_EQ(warm->lacks(), "");
}

TEST_F(Warm, NamesWhatItCouldNotLoadOfWhatItWasTold) {
  Make(true);
  Poll();
  Say("refused --preload nosuch: No module named 'nosuch'");
  Poll();
  EXPECT_FALSE(warm->is_awaited());
  EXPECT_THAT(warm->lacks(), HasSubstr("--preload nosuch"));
  EXPECT_EQ(warm->server(), nullptr);
}

TEST_F(Warm, IsAskedNoMoreWhereItsProgramCannotBeForked) {
  Make(true);
  Poll();
  Say("refused it has threads");
  Poll();
  EXPECT_EQ(warm->lacks(), "") << "ranks start by themselves";
  EXPECT_THAT(log->lines, Contains(HasSubstr("it has threads; ranks start by themselves")));
  Kill();
  now = now + 1h;
  List();
  Poll();
  EXPECT_EQ(launched, 1) << "the next one would say the same";
}

TEST_F(Warm, HoldsNobodyUpWhereItCannotBeStarted) {
  Make(true);
  refuses = true;
  Poll();
  EXPECT_FALSE(warm->is_awaited());
  EXPECT_THAT(log->lines, Contains(HasSubstr("no process left")));
}

TEST_F(Warm, HoldsNobodyUpWhereItDies) {
  Make(true);
  Poll();
  Kill();
  EXPECT_FALSE(warm->is_awaited());
  EXPECT_EQ(warm->server(), nullptr);
  EXPECT_THAT(log->lines, Contains(HasSubstr("event=warm_died")));
}

TEST_F(Warm, IsOverWithTheRun) {
  Make(true);
  Poll();
  Say("ready");
  Poll();
  ASSERT_NE(warm->server(), nullptr);
  warm->End();
  EXPECT_EQ(warm->server(), nullptr);
  now = now + 1h;
  Poll();
  EXPECT_EQ(launched, 1);
}

}  // namespace
}  // namespace kintsugi
