// A scenario tells what the recording told: the same actions, fewer ticks and beats; and what is no scenario is
// refused.
#include "tools/replay/scenario.h"

#include <gtest/gtest.h>

#include "tests/unit/journal/recorded.h"

namespace kintsugi {
namespace {

using journal::Input;
using journal::SomePlan;

std::string Refusal(const std::string& text) { return ParseScenario(text).status().message(); }

TEST(Scenario, IsItsOwnTruth) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const sim::Plan plan = SomePlan(seed);
    const std::string text = MakeScenario("One line.\nAnother.", plan.policy, {1, 1}, InputsOf(plan));
    const Result<Scenario> parsed = ParseScenario(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString() << "\n" << text;
    const std::string again = RunScenario(*parsed);
    ASSERT_EQ(FirstDifference(text, again), "") << "seed " << seed;
    EXPECT_EQ(text.substr(0, 25), "# One line.\n# Another.\npo");
  }
}

TEST(Scenario, ThinningKeepsEveryAction) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const sim::Plan plan = SomePlan(seed);
    const std::vector<Input> all = InputsOf(plan);
    const std::vector<Input> thin = Thin(plan.policy, {1, 1}, all);
    EXPECT_LT(thin.size(), all.size());
    const auto digest = [&](const std::vector<Input>& inputs) {
      core::ControllerCore core(plan.policy, {1, 1});
      journal::ActionDigest actions;
      for (const Input& input : inputs) actions.Add(journal::Apply(core, input));
      return actions.value();
    };
    EXPECT_EQ(digest(thin), digest(all)) << "seed " << seed;
  }
}

TEST(Scenario, RefusalsNameTheLine) {
  const std::string good = "# x\npolicy world_size=2\n0.000 start\n    spawn rank=0\n";
  EXPECT_TRUE(ParseScenario(good).ok());
  EXPECT_NE(Refusal("0.000 start\n").find("line 1: the policy"), std::string::npos);
  EXPECT_NE(Refusal("policy world_size=2\n1.000 tick\n").find("line 2"), std::string::npos);
  EXPECT_NE(Refusal(good + "5.0001 tick\n").find("line 5"), std::string::npos);
  EXPECT_NE(Refusal(good + "5.000 tick\n4.999 tick\n").find("before the line above"), std::string::npos);
  EXPECT_NE(Refusal(good + "0.000 start\n").find("second time"), std::string::npos);
  EXPECT_NE(Refusal(good + "5.000 process_exited rank=2\n").find("no such rank"), std::string::npos);
  EXPECT_NE(Refusal(good + "5.000 tick every=20ms times=0\n").find("times=40"), std::string::npos);
  EXPECT_NE(Refusal(good + "9000.000 tick every=20.000ms times=1000000\n").find("before the line above"),
            std::string::npos);
  EXPECT_NE(Refusal(good + "term 2.1\n").find("before the first input"), std::string::npos);
  EXPECT_NE(Refusal("policy world_size=2\npolicy world_size=3\n").find("second policy"), std::string::npos);
}

TEST(Scenario, TicksInARowAreOneLine) {
  const std::string text = "policy world_size=1\n0.000 start\n2000.000 tick every=20.000ms times=100\n";
  const Scenario scenario = ParseScenario(text).value();
  ASSERT_EQ(scenario.lines.back().inputs.size(), 100u);
  EXPECT_EQ(scenario.lines.back().inputs.front().now, kScenarioOrigin + std::chrono::milliseconds(20));
}

TEST(Scenario, FirstDifferenceNamesBothLines) {
  EXPECT_EQ(FirstDifference("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(FirstDifference("a\nb\n", "a\nc\n"), "line 2: expected 'b', got 'c'");
  EXPECT_EQ(FirstDifference("a\n", "a\nc\n"), "line 2: expected '', got 'c'");
}

}  // namespace
}  // namespace kintsugi
