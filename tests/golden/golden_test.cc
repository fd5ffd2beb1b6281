// Golden scenarios: each file in `scenarios` is one incident, as a story of what went into the controller's core and
// what came out. The inputs are run through the real core, and every line that comes out is compared.
//   KINTSUGI_GOLDEN=rewrite golden_test     writes what comes out now into the files: look at the difference before
//   committing KINTSUGI_GOLDEN=make golden_test --gtest_filter=Golden.Make     makes the files of plans.cc that are not
//   there
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/golden/plans.h"
#include "tests/support/recorded_inputs.h"
#include "tools/replay/scenario.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

bool Asked(const char* what) {
  const char* asked = std::getenv("KINTSUGI_GOLDEN");
  return asked && std::string(asked) == what;
}

std::vector<fs::path> Files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(KINTSUGI_SCENARIOS))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(Golden, EveryScenarioGivesTheLinesThatAreWritten) {
  ASSERT_GE(Files().size(), 13u) << "in " << KINTSUGI_SCENARIOS;
  for (const fs::path& path : Files()) {
    const std::string text = Read(path);
    const Result<Scenario> scenario = ParseScenario(text);
    ASSERT_TRUE(scenario.ok()) << path << ": " << scenario.status().ToString();
    const std::string now = RunScenario(*scenario);
    if (Asked("rewrite") && now != text) {
      Write(path, now);
      continue;
    }
    EXPECT_EQ(text, now) << path << ": " << FirstDifference(text, now);
  }
}

TEST(Golden, EveryScenarioTellsItsIncidentFirst) {
  for (const fs::path& path : Files()) EXPECT_EQ(Read(path).substr(0, 2), "# ") << path;
}

// An input that is gone, comes later, or says something else is another story: the comparison is able to fail.
TEST(Golden, EveryInputThatIsNoBeatOrTickMatters) {
  size_t same = 0, all = 0;
  for (const fs::path& path : Files()) {
    const std::string text = Read(path);
    Scenario scenario = ParseScenario(text).value();
    const std::string whole = RunScenario(scenario);
    for (size_t i = 0; i < scenario.lines.size(); ++i) {
      if (scenario.lines[i].inputs.empty() || scenario.lines[i].text.find(" start") != std::string::npos) continue;
      Scenario without = scenario;
      without.lines[i].inputs.clear();
      ++all;
      same += RunScenario(without) == whole;
    }
  }
  // Some say what was known already: a connection of a process that is dead, what comes after the end.
  EXPECT_LT(same, all / 5) << "of " << all;
}

TEST(Golden, Make) {
  if (!Asked("make")) GTEST_SKIP() << "makes new scenarios; run with KINTSUGI_GOLDEN=make";
  for (const GoldenPlan& golden : GoldenPlans()) {
    const fs::path path = fs::path(KINTSUGI_SCENARIOS) / (golden.name + ".txt");
    if (!fs::exists(path)) Write(path, MakeScenario(golden.remark, golden.plan.policy, {1, 1}, InputsOf(golden.plan)));
  }
}

}  // namespace
}  // namespace kintsugi
