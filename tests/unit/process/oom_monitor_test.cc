#include "runtime/process/oom_monitor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

TEST(OomMonitor, ReadsCountersOfEveryKernelInterface) {
  EXPECT_EQ(ParseOomKills("low 0\nhigh 0\nmax 3\noom 2\noom_kill 7\noom_group_kill 0\n"), 7u);
  EXPECT_EQ(ParseOomKills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2u);
  EXPECT_FALSE(ParseOomKills("oom_kill x").has_value());
  EXPECT_FALSE(ParseOomKills("").has_value());
}

TEST(OomMonitor, FindsTheVictimInTheKernelsOwnRecordsOnly) {
  EXPECT_EQ(ParseOomVictim("3,1,2,-;Out of memory: Killed process 4711 (byte_lm) total-vm:1kB"), 4711);
  EXPECT_EQ(ParseOomVictim("3,1,2,-;Memory cgroup out of memory: Killed process 12 (sh) total-vm:1kB"), 12);
  EXPECT_FALSE(ParseOomVictim("3,1,2,-;someone wrote: Killed process 12 (sh)").has_value());
  EXPECT_FALSE(ParseOomVictim("3,1,2,-;Out of memory: Killed process x").has_value());
  EXPECT_FALSE(ParseOomVictim("").has_value());
}

class Counter {
 public:
  Counter() : path_(testing::TempDir() + "/kintsugi_oom_" + std::to_string(::getpid())) { Set(0); }
  ~Counter() { ::unlink(path_.c_str()); }
  void Set(int kills) { std::ofstream(path_) << "oom 0\noom_kill " << kills << "\n"; }
  OomMonitor::Sources sources() const { return {path_, ""}; }

 private:
  std::string path_;
};

TEST(OomMonitor, EachCountedKillExplainsOneDeath) {
  Counter counter;
  counter.Set(5);
  OomMonitor monitor(counter.sources());
  EXPECT_FALSE(monitor.Claim(100)) << "kills before our time are not ours";
  counter.Set(7);
  EXPECT_TRUE(monitor.Claim(100));
  EXPECT_TRUE(monitor.Claim(101));
  EXPECT_FALSE(monitor.Claim(102));
}

TEST(OomMonitor, ForgetsKillsThatNobodyClaimed) {
  Counter counter;
  OomMonitor monitor(counter.sources());
  counter.Set(1);
  monitor.Settle();
  EXPECT_TRUE(monitor.Claim(100)) << "counted only since the last call: may still be explained";
  counter.Set(2);
  monitor.Settle();
  monitor.Settle();
  EXPECT_FALSE(monitor.Claim(101));
}

TEST(OomMonitor, AnswersNoWithoutSources) {
  OomMonitor monitor(OomMonitor::Sources{"/nowhere", "/nowhere"});
  EXPECT_FALSE(monitor.Claim(100));
}

TEST(ChildProcess, CallsASigkillByTheKernelOutOfMemory) {
  Counter counter;
  OomMonitor monitor(counter.sources());
  const ProcessHelpers helpers{nullptr, &monitor};
  ProcessHarness victim;
  ASSERT_TRUE(victim.Start(Shell("kill -KILL $$"), helpers).ok());
  counter.Set(1);
  ASSERT_TRUE(victim.RunToExit());
  EXPECT_EQ(victim.cause().kind, ExitKind::kOutOfMemory);
  EXPECT_EQ(victim.cause().text, "out of memory (killed by the kernel)");

  ProcessHarness ordered;
  ASSERT_TRUE(ordered.Start(Shell("sleep 1000"), helpers).ok());
  counter.Set(2);
  ASSERT_TRUE(ordered.process().Kill(SIGKILL).ok());
  ASSERT_TRUE(ordered.RunToExit());
  EXPECT_EQ(ordered.cause().kind, ExitKind::kSignal) << "our own signal needs no explanation";
}

// A memory cgroup for one real kill, where this user may make one.
class MemoryGroup {
 public:
  MemoryGroup() {
    const std::string name = "/kintsugi-test-" + std::to_string(::getpid());
    for (const std::string root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      if (::mkdir((root + name).c_str(), 0755) != 0) continue;
      folder_ = root + name;
      const bool v2 = std::ifstream(folder_ + "/memory.events").good();
      counter_ = folder_ + (v2 ? "/memory.events" : "/memory.oom_control");
      std::ofstream limit(folder_ + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      usable_ = static_cast<bool>(limit << "33554432" << std::flush) && std::ifstream(counter_).good();
      if (usable_) break;
      ::rmdir(folder_.c_str());
    }
  }
  ~MemoryGroup() {
    if (usable_) EventuallyTrue([this] { return ::rmdir(folder_.c_str()) == 0; });
  }
  bool usable() const { return usable_; }
  const std::string& folder() const { return folder_; }
  const std::string& counter() const { return counter_; }

 private:
  std::string folder_;
  std::string counter_;
  bool usable_ = false;
};

TEST(OomMonitor, ExplainsARealKillByTheKernel) {
  const MemoryGroup group;
  if (!group.usable()) GTEST_SKIP() << "this user cannot make a memory cgroup here";
  OomMonitor monitor(OomMonitor::Sources{group.counter(), ""});
  ProcessHarness victim;
  ASSERT_TRUE(victim
                  .Start(Shell("echo $$ > " + group.folder() +
                               "/cgroup.procs && exec dd if=/dev/zero of=/dev/null bs=256M count=1"),
                         ProcessHelpers{nullptr, &monitor})
                  .ok());
  ASSERT_TRUE(victim.RunToExit());
  EXPECT_EQ(victim.cause().text, "out of memory (killed by the kernel)");
}

}  // namespace
}  // namespace kintsugi
