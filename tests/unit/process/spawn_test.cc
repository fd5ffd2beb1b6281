#include "runtime/process/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MakeFile(const std::string& name, const std::string& text, mode_t mode) {
  const std::string path = testing::TempDir() + "/kintsugi_" + std::to_string(::getpid()) + "_" + name;
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

Status StartStatus(const std::string& program) {
  ProcessSpec spec;
  spec.program = program;
  return ForkExec(spec).status();
}

TEST(Spawn, NamesAMissingProgramAndWhereItLooked) {
  ProcessSpec spec;
  spec.program = "kintsugi-no-such-program";
  spec.environment["PATH"] = "/nowhere:/usr/bin";
  const Status status = ForkExec(spec).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("kintsugi-no-such-program"));
  EXPECT_THAT(status.message(), HasSubstr("/nowhere:/usr/bin"));
  EXPECT_EQ(StartStatus("/nowhere/program").code(), StatusCode::kNotFound);
  EXPECT_EQ(StartStatus("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StartStatus("/tmp").code(), StatusCode::kNotFound) << "a folder is no program";
}

TEST(Spawn, TellsWhyAFileCannotRun) {
  const std::string plain = MakeFile("plain", "#!/bin/sh\n", 0644);
  const std::string lost = MakeFile("lost", "#!/nowhere/interpreter\n", 0755);
  const std::string garbage = MakeFile("garbage", "no program at all\n", 0755);
  EXPECT_EQ(StartStatus(plain).code(), StatusCode::kPermissionDenied);
  const Status interpreter = StartStatus(lost);
  EXPECT_EQ(interpreter.code(), StatusCode::kNotFound);
  EXPECT_THAT(interpreter.message(), HasSubstr("interpreter"));
  EXPECT_EQ(StartStatus(garbage).code(), StatusCode::kFailedPrecondition);
  for (const std::string& path : {plain, lost, garbage}) ::unlink(path.c_str());
}

TEST(Spawn, SearchesTheChildsPath) {
  const std::string folder = testing::TempDir() + "/kintsugi_path_" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0755), 0);
  std::ofstream(folder + "/only-there") << "#!/bin/sh\necho found \"$@\"\n";
  ::chmod((folder + "/only-there").c_str(), 0755);
  ProcessHarness harness;
  ProcessSpec spec;
  spec.program = "only-there";
  spec.args = {"a b", ""};
  spec.environment["PATH"] = "/nowhere:" + folder + ":/usr/bin:/bin";
  ASSERT_TRUE(harness.Start(spec).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_EQ(harness.FirstLine(), "found a b ");
  ::unlink((folder + "/only-there").c_str());
  ::rmdir(folder.c_str());
}

TEST(Spawn, RefusesWhatCannotBePassed) {
  ProcessSpec spec = Shell("true");
  spec.environment["A=B"] = "c";
  EXPECT_EQ(ForkExec(spec).status().code(), StatusCode::kInvalidArgument);
  spec = Shell(std::string("tr\0ue", 5));
  EXPECT_EQ(ForkExec(spec).status().code(), StatusCode::kInvalidArgument);
  spec = Shell("true");
  spec.passed_fds = {{987654, "FD"}};
  const Status status = ForkExec(spec).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("987654"));
}

TEST(Spawn, ChangesTheEnvironment) {
  ::setenv("KINTSUGI_TEST_KEPT", "kept", 1);
  ::setenv("KINTSUGI_TEST_GONE", "gone", 1);
  ProcessSpec spec = Shell("echo $KINTSUGI_TEST_KEPT-$KINTSUGI_TEST_GONE-$KINTSUGI_TEST_NEW");
  spec.environment["KINTSUGI_TEST_NEW"] = "new=er";
  spec.unset_environment = {"KINTSUGI_TEST_GONE"};
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(spec).ok());
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_EQ(harness.FirstLine(), "kept--new=er");
}

TEST(Spawn, PassesExactlyTheNamedDescriptors) {
  int first[2];
  int second[2];
  ASSERT_EQ(::pipe(first), 0) << "inheritable on purpose: it must not leak";
  ASSERT_EQ(::pipe(second), 0);
  // The child's numbers 3 and 4 are likely taken here by other files: the order of renumbering must not matter.
  ProcessSpec spec = Shell("ls /proc/$$/fd; echo hello >&$OUT_FD; echo IN_FD is $IN_FD; cat <&$IN_FD");
  spec.passed_fds = {{second[0], "IN_FD"}, {first[1], "OUT_FD"}};
  ProcessHarness harness;
  ASSERT_TRUE(harness.Start(spec).ok());
  ASSERT_EQ(::write(second[1], "question\n", 9), 9);
  for (const int fd : {first[1], second[0], second[1]}) ::close(fd);
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_THAT(harness.Texts(OutputStream::kStdout), ElementsAre("0", "1", "2", "3", "4", "IN_FD is 3", "question"));
  char answer[16];
  ASSERT_EQ(::read(first[0], answer, sizeof(answer)), 6);
  EXPECT_EQ(std::string(answer, 6), "hello\n");
  ::close(first[0]);
}

TEST(Spawn, GivesDefaultSignalsAnEmptyInputAndAGroupOfItsOwn) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old_handler = std::signal(SIGUSR2, SIG_IGN);
  ProcessHarness harness;
  const Status status = harness.Start(
      Shell("grep -E '^Sig(Blk|Ign)' /proc/self/status; cat; "
            "test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ && echo leader"));
  std::signal(SIGUSR2, old_handler);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_TRUE(harness.RunToEnd());
  EXPECT_THAT(harness.Texts(OutputStream::kStdout),
              ElementsAre("SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "leader"));
}

TEST(Spawn, LeavesNoProcessWhenTheHookRefuses) {
  pid_t seen = -1;
  const Result<SpawnedProcess> process = ForkExec(Shell("sleep 1000"), [&seen](pid_t pid) {
    seen = pid;
    return Status(StatusCode::kUnavailable, "refused by the test");
  });
  EXPECT_EQ(process.status().code(), StatusCode::kUnavailable);
  ASSERT_GT(seen, 0);
  EXPECT_EQ(::kill(seen, 0), -1);
}

}  // namespace
}  // namespace kintsugi
