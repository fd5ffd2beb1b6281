// A seed is a replay: the log of a run is the same every time, and holds nothing of the machine it was made on.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "runtime/journal/text.h"
#include "runtime/sim/campaign.h"

namespace kintsugi::sim {
namespace {

std::string LogOf(const Plan& plan) {
  std::string text;
  Cluster(plan, [&text](const std::string& line) { text += line + "\n"; }).Run();
  return text;
}

TEST(Replay, GivesTheSameLogByteForByte) {
  for (const char* name : {"quick", "network", "default"})
    for (uint64_t seed = 100; seed < 120; ++seed) {
      const Plan plan = DrawPlan(seed, FindProfile(name).value(), 0);
      const std::string once = LogOf(plan);
      // Other memory below, so that an address in the log, or an order by address, shows.
      const std::vector<std::unique_ptr<int>> litter = [] {
        std::vector<std::unique_ptr<int>> made;
        for (int i = 0; i < 1000; ++i) made.push_back(std::make_unique<int>(i));
        return made;
      }();
      ASSERT_EQ(once, LogOf(plan)) << name << " seed " << seed;
      ASSERT_GT(once.size(), 1000u);
      ASSERT_EQ(once.find("0x"), std::string::npos) << "an address?";
    }
}

TEST(Replay, TheLogIsPlainText) {
  const std::string log = LogOf(DrawPlan(7, FindProfile("network").value(), 0));
  EXPECT_TRUE(std::all_of(log.begin(), log.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(Replay, TheLogHasEveryFieldOfWhatAgentsSay) {
  const Term led{1, 1};  // by whom a message is where its line names no term
  const std::string came = "<-    ";
  size_t messages = 0;
  std::istringstream log(LogOf(DrawPlan(7, FindProfile("network").value(), 0)));
  for (std::string line; std::getline(log, line);) {
    const size_t at = line.find(came);
    if (at == line.npos) continue;
    const std::string said = line.substr(at + came.size());
    const auto event = journal::ReadEvent(said, led, TimePoint());
    ASSERT_TRUE(event.ok()) << line << "\n" << event.status().ToString();
    EXPECT_EQ(journal::WriteEvent(*event, led, TimePoint()), said) << "read back, it says another thing";
    ++messages;
  }
  EXPECT_GT(messages, 10u);
}

TEST(Replay, LoggingDoesNotChangeARun) {
  const Plan plan = DrawPlan(11, FindProfile("network").value(), 0);
  const Outcome silent = Cluster(plan).Run();
  const Outcome logged = Cluster(plan, [](const std::string&) {}).Run();
  EXPECT_EQ(silent.took, logged.took);
  EXPECT_EQ(silent.exit_code, logged.exit_code);
  EXPECT_EQ(silent.incidents, logged.incidents);
}

TEST(Replay, RanksAndProfileAreWhatWasAskedFor) {
  EXPECT_EQ(DrawPlan(3, FindProfile("default").value(), 0).policy.world_size, 8);
  EXPECT_EQ(DrawPlan(3, FindProfile("quick").value(), 16).policy.world_size, 16);
  EXPECT_FALSE(FindProfile("none").ok());
  EXPECT_FALSE(CheckRanks(7).ok());
  EXPECT_FALSE(CheckRanks(-2).ok());
  EXPECT_TRUE(CheckRanks(0).ok());
  EXPECT_TRUE(CheckRanks(10000).ok());
  EXPECT_TRUE(Cluster(DrawPlan(3, FindProfile("quick").value(), 32)).Run().violations.empty());
}

}  // namespace
}  // namespace kintsugi::sim
