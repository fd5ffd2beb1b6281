#include "runtime/process/guardian.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "runtime/process/process_sweep.h"
#include "runtime/process/spawn.h"
#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

// A worker that ignores SIGTERM, with a child that does too and one that has left the worker's process group.
constexpr char kFamily[] =
    "trap '' TERM HUP; "
    "sh -c 'trap \"\" TERM HUP; echo grandchild $$; while :; do sleep 1; done' & "
    "setsid sh -c 'trap \"\" TERM HUP; echo escaped $$; while :; do sleep 1; done' & "
    "while :; do sleep 1; done";

std::string UniqueMark() {
  static int count = 0;
  return "KINTSUGI_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(++count);
}

ProcessSpec Launcher(const std::string& mode, const std::string& script) {
  ProcessSpec spec;
  spec.program = KINTSUGI_TEST_LAUNCHER;
  spec.args = {mode, UniqueMark(), script};
  return spec;
}

std::map<std::string, pid_t> Family(const ProcessHarness& harness) {
  std::map<std::string, pid_t> family;
  for (const ProcessHarness::Line& line : harness.lines()) {
    const size_t space = line.text.find(' ');
    if (space != std::string::npos) family[line.text.substr(0, space)] = std::stoi(line.text.substr(space + 1));
  }
  return family;
}

TEST(Guardian, LeavesNothingBehindWhenTheLauncherIsKilled) {
  ProcessHarness launcher;
  ASSERT_TRUE(launcher.Start(Launcher("stay", kFamily)).ok());
  ASSERT_TRUE(launcher.RunToLines(4));
  const std::map<std::string, pid_t> family = Family(launcher);
  ASSERT_EQ(family.size(), 4u);
  for (const auto& [name, pid] : family) ASSERT_FALSE(IsGone(pid)) << name;
  ASSERT_TRUE(launcher.process().Kill(SIGKILL).ok());
  ASSERT_TRUE(launcher.RunToExit());
  for (const auto& [name, pid] : family) {
    EXPECT_TRUE(EventuallyTrue([p = pid] { return IsGone(p); })) << name << " " << pid << " outlived its launcher";
    if (!IsGone(pid)) ::kill(pid, SIGKILL);
  }
}

TEST(Guardian, LeavesNothingBehindWhenTheLauncherEndsInOrder) {
  ProcessHarness launcher;
  ASSERT_TRUE(launcher.Start(Launcher("leave", std::string("(sleep 0.3; echo ready) & ") + kFamily)).ok());
  ASSERT_TRUE(launcher.RunToExit());
  EXPECT_EQ(launcher.cause().text, "exited with code 0");
  ASSERT_TRUE(launcher.RunToEnd());
  const std::map<std::string, pid_t> family = Family(launcher);
  EXPECT_GE(family.size(), 2u);
  for (const auto& [name, pid] : family) {
    EXPECT_TRUE(EventuallyTrue([p = pid] { return IsGone(p); })) << name << " " << pid;
  }
}

TEST(Guardian, SurvivesWhatEndsOthersAndShowsItsName) {
  Result<std::unique_ptr<Guardian>> guardian = Guardian::Start();
  ASSERT_TRUE(guardian.ok()) << guardian.status().ToString();
  const pid_t pid = (*guardian)->pid();
  const auto name = [pid] {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string text;
    std::getline(file, text);
    return text;
  };
  ASSERT_TRUE(EventuallyTrue([&] { return name() == kGuardProcessName; }));
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE}) ::kill(pid, signal);
  ASSERT_TRUE((*guardian)->Watch(1000000000).ok()) << "the helper still takes orders";
  EXPECT_EQ((*guardian)->pid(), pid);
  (*guardian)->Release(1000000000);
  guardian->reset();
  EXPECT_EQ(::kill(pid, 0), -1) << "reaped";
}

TEST(Guardian, ReplacesAHelperThatWasKilledAndTellsItEverything) {
  Result<std::unique_ptr<Guardian>> guardian = Guardian::Start();
  ASSERT_TRUE(guardian.ok());
  const pid_t first = (*guardian)->pid();
  ::kill(first, SIGKILL);
  ASSERT_TRUE(EventuallyTrue([first] { return IsGone(first); }));
  ASSERT_TRUE((*guardian)->Watch(1000000000).ok());
  EXPECT_NE((*guardian)->pid(), first);
  (*guardian)->Release(1000000000);
}

TEST(Guardian, MendsAHelperThatHasEnded) {
  Result<std::unique_ptr<Guardian>> guardian = Guardian::Start();
  ASSERT_TRUE(guardian.ok());
  EXPECT_FALSE((*guardian)->Mend().value());
  const pid_t first = (*guardian)->pid();
  ::kill(first, SIGKILL);
  ASSERT_TRUE(EventuallyTrue([first] { return IsGone(first); }));
  EXPECT_TRUE((*guardian)->Mend().value());
  EXPECT_NE((*guardian)->pid(), first);
  EXPECT_EQ(::kill((*guardian)->pid(), 0), 0);
  EXPECT_FALSE((*guardian)->Mend().value());
}

TEST(Guardian, RefusesWhatIsNoWorkersGroup) {
  Result<std::unique_ptr<Guardian>> guardian = Guardian::Start();
  ASSERT_TRUE(guardian.ok());
  EXPECT_EQ((*guardian)->Watch(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((*guardian)->Watch(1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((*guardian)->Watch(-5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Guardian::Start("no assignment").status().code(), StatusCode::kInvalidArgument);
}

TEST(ProcessSweep, KillsOnlyWhatBearsTheExactMark) {
  const std::string mark = UniqueMark();
  ProcessHarness marked;
  ProcessHarness similar;
  ProcessSpec spec = Shell("echo up; exec sleep 1000");
  spec.environment["KINTSUGI_TEST_MARK"] = mark.substr(mark.find('=') + 1);
  ASSERT_TRUE(marked.Start(spec).ok());
  spec.environment["KINTSUGI_TEST_MARK"] += "0";
  ASSERT_TRUE(similar.Start(spec).ok());
  ASSERT_TRUE(marked.RunToLines(1));
  ASSERT_TRUE(similar.RunToLines(1));
  EXPECT_GE(KillProcessesWithEnvironment(mark.c_str()), 1);
  ASSERT_TRUE(marked.RunToExit());
  EXPECT_EQ(marked.cause().text, "killed by SIGKILL");
  EXPECT_TRUE(similar.process().running());
  similar.Settle();
  EXPECT_FALSE(similar.exited());
  EXPECT_EQ(KillProcessesWithEnvironment(""), 0);
}

}  // namespace
}  // namespace kintsugi
