#include "runtime/process/orphans.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

bool NobodyIsKnown(pid_t) { return false; }

// A wrapper, which waits, and a process in a session of its own that has the mark and some memory to give back.
std::pair<pid_t, pid_t> StartWrapped(const std::string& mark) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t wrapper = ::fork();
  if (wrapper == 0) {
    const pid_t inner = ::fork();
    if (inner == 0) {
      ::setsid();
      (void)!::write(ready[1], "", 1);
      const char* const args[] = {"dd", "if=/dev/zero", "of=/dev/null", "bs=48M", nullptr};
      const char* const environment[] = {mark.c_str(), nullptr};
      ::execve("/bin/dd", const_cast<char**>(args), const_cast<char**>(environment));
      ::_exit(127);
    }
    (void)!::write(ready[1], &inner, sizeof inner);
    for (;;) ::pause();
  }
  pid_t inner = 0;
  char bytes[1 + sizeof inner];
  for (size_t got = 0; got < sizeof bytes;) {
    const ssize_t size = ::read(ready[0], bytes + got, sizeof bytes - got);
    if (size <= 0) break;
    got += static_cast<size_t>(size);
  }
  ::close(ready[0]);
  ::close(ready[1]);
  // The one byte and the number may come in either order: the number is who lives below the wrapper.
  std::ifstream children("/proc/" + std::to_string(wrapper) + "/task/" + std::to_string(wrapper) + "/children");
  children >> inner;
  return {wrapper, inner};
}

TEST(Orphans, NoneIsThereOnceNoneIsLeft) {
  BecomeReaper();
  for (int round = 0; round < 20; ++round) {
    const std::string mark = "KINTSUGI_TEST_LIFE=" + std::to_string(::getpid()) + "." + std::to_string(round);
    const auto [wrapper, inner] = StartWrapped(mark);
    if (inner <= 0) GTEST_SKIP() << "this kernel does not list children";
    // Until it is the program with the mark: a process in the middle of exec shows none.
    ASSERT_TRUE(EventuallyTrue([&mark, inner = inner] {
      std::ifstream environment("/proc/" + std::to_string(inner) + "/environ");
      std::string text;
      return std::getline(environment, text, '\0') && text == mark;
    }));
    ::kill(wrapper, SIGKILL);
    ASSERT_EQ(::waitpid(wrapper, nullptr, 0), wrapper);
    ASSERT_TRUE(EventuallyTrue([&] { return KillOrphans(mark, NobodyIsKnown) == 0; }));
    EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(inner))) << "round " << round;
  }
}

TEST(Orphans, OthersAreLeftAlone) {
  BecomeReaper();
  const auto [wrapper, inner] = StartWrapped("KINTSUGI_TEST_LIFE=of another");
  if (inner <= 0) GTEST_SKIP() << "this kernel does not list children";
  ::kill(wrapper, SIGKILL);
  ASSERT_EQ(::waitpid(wrapper, nullptr, 0), wrapper);
  EXPECT_EQ(KillOrphans("KINTSUGI_TEST_LIFE=ours", NobodyIsKnown), 0u);
  EXPECT_FALSE(IsGone(inner));
  ::kill(inner, SIGKILL);
  ASSERT_TRUE(EventuallyTrue([inner = inner] { return IsGone(inner); }));
  ReapOrphans([inner = inner](pid_t pid) { return pid == inner; });
  EXPECT_TRUE(std::filesystem::exists("/proc/" + std::to_string(inner))) << "reaped, and it was known";
  ReapOrphans(NobodyIsKnown);
  EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(inner)));
}

// The launcher's thread reaps orphans while another thread waits for a child of its own: which of the two looks first is chance.
TEST(Orphans, AChildThatSomebodyWaitsForIsNotReapedByWhoeverLooksFirst) {
  boost::asio::io_context io;
  std::optional<ExitCause> ended;
  ChildProcess::Callbacks callbacks;
  callbacks.on_exit = [&](const ExitCause& cause) { ended = cause; };
  const auto child = ChildProcess::Spawn(io, Shell("exit 3"), std::move(callbacks)).value();
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child->pid()), &info, WEXITED | WNOWAIT), 0);
  ReapOrphans(NobodyIsKnown);
  (void)KillOrphans("KINTSUGI_TEST_LIFE=ours", NobodyIsKnown);
  io.run();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->kind, ExitKind::kExitCode) << ended->text;
  EXPECT_EQ(ended->code, 3);
}

}  // namespace
}  // namespace kintsugi
