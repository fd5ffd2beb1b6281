#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

TEST(FullDisk, IsFoundBeforeAnythingIsWrittenAndNamesBytesAndRemedy) {
  MemoryFileSystem files;
  World world("root", files, 1 << 16);
  ASSERT_TRUE(world.Save(10, 1).ok());
  files.SetCapacity(200'000);
  files.CountFromHere();
  const Status status = world.Write(0, 20, 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      Names(status.message(), "layout0.shard-0-2.bin", "131144 bytes needed", "free space", "step 20", "rank 0"))
      << status.ToString();
  EXPECT_FALSE(files.Has("root/step_0000000020.tmp-g1.job-a"));
  EXPECT_EQ(FindNewestComplete("root", files)->step(), Step(10));
}

// What every step of the way does when the disk is one byte too small for it.
TEST(FullDisk, AtAnyPointLeavesTheOldCheckpointAndGivesTheSpaceBack) {
  int failed = 0, succeeded = 0;
  for (uint64_t capacity = 4'000; capacity < 16'000 && succeeded < 3; capacity += 131) {
    MemoryFileSystem files;
    World world("root", files, 64);
    ASSERT_TRUE(world.Save(10, 1).ok());
    files.SetCapacity(capacity);
    const Status saved = world.Save(20, 1);
    saved.ok() ? ++succeeded : ++failed;
    ASSERT_TRUE(saved.ok() || saved.code() == StatusCode::kResourceExhausted) << saved.ToString();
    const auto found = FindNewestComplete("root", files);
    ASSERT_TRUE(found.ok());
    ASSERT_TRUE(Verify(found->path, files).ok());
    ASSERT_EQ(found->step(), Step(saved.ok() ? 20 : 10)) << capacity;
    files.SetCapacity(UINT64_MAX);
    ASSERT_TRUE(world.Save(20, 2).ok()) << capacity;
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(succeeded, 0);
}

enum ChildResult { kPassed = 0, kFailed = 1, kNotAllowed = 2 };

bool WriteFile(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// In a mount namespace of its own: a file system of 4 MiB over `folder`.
bool MountSmallDisk(const std::string& folder) {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  if (uid == 0) {
    if (::unshare(CLONE_NEWNS) != 0) return false;
  } else {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!WriteFile("/proc/self/setgroups", "deny") ||
        !WriteFile("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1") ||
        !WriteFile("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1"))
      return false;
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") == 0;
}

ChildResult SaveOnSmallDisk(const std::string& folder) {
  if (!MountSmallDisk(folder)) return kNotAllowed;
  World fits(folder, PosixFileSystem(), 1 << 10), too_large(folder, PosixFileSystem(), 1 << 22);
  if (!fits.Save(10, 1).ok()) return kFailed;
  too_large.SetTo(20);
  const Status status = too_large.Write(0, 20, 1);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  const auto found = FindNewestComplete(folder);
  return status.code() == StatusCode::kResourceExhausted && Names(status.message(), "8388680 bytes needed") &&
                 !std::filesystem::exists(folder + "/step_0000000020.tmp-g1.job-a") && found.ok() &&
                 found->step() == Step(10) && fits.Save(20, 2).ok()
             ? kPassed
             : kFailed;
}

TEST(FullDisk, OnARealSmallFileSystemIsToldAsSuch) {
  TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(SaveOnSmallDisk(folder.path()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed)
    GTEST_SKIP() << "this system does not let a process mount a small file system";
  EXPECT_EQ(WEXITSTATUS(status), kPassed);
}

}  // namespace
}  // namespace kintsugi::checkpoint
