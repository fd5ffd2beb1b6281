// The real file system: a whole round trip, and what its errors turn into.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "replica/save/file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

TEST(PosixFileSystem, CarriesASaveThroughPublicationReplacementAndLoad) {
  TemporaryFolder folder;
  World world(folder.path() + "/new/root", PosixFileSystem(), 2 * (5 * static_cast<int64_t>(kBlockBytes) + 4) / 4);
  for (uint64_t step : {10, 20, 30}) {
    const Status saved = world.Save(step, 1);
    ASSERT_TRUE(saved.ok()) << saved.ToString();
  }
  ASSERT_TRUE(world.Save(30, 2).ok());
  const auto found = FindNewestComplete(world.root());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->step(), Step(30));
  EXPECT_EQ(found->manifest.identity.generation, Generation(2));
  EXPECT_TRUE(Verify(found->path).ok());
  ASSERT_TRUE(world.LoadAll(found->path).ok());
  EXPECT_TRUE(world.IsAt(30));
  EXPECT_EQ(ListSteps(world.root())->size(), 2u);
  std::ifstream latest(world.root() + "/latest");
  std::string name;
  std::getline(latest, name);
  EXPECT_EQ(name, "step_0000000030");
}

TEST(PosixFileSystem, WritesScatteredPiecesOneBehindTheOther) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::vector<std::vector<uint8_t>> parts;
  std::vector<WritableFile::Piece> pieces;
  std::string expected;
  for (int i = 0; i < 3000; ++i) parts.emplace_back(static_cast<size_t>(i % 7), static_cast<uint8_t>(i));
  for (const auto& part : parts) {
    pieces.emplace_back(part);
    expected.append(part.begin(), part.end());
  }
  auto file = PosixFileSystem().Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Reserve(expected.size()).ok());
  ASSERT_TRUE((*file)->Write(0, pieces).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(*ReadSmallFile(PosixFileSystem(), path, expected.size()), expected);
  EXPECT_EQ(ReadSmallFile(PosixFileSystem(), path, expected.size() - 1).status().code(), StatusCode::kDataLoss);
}

TEST(PosixFileSystem, ReadsOnlyRegularFilesAndNeverWaitsForAPipe) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(PosixFileSystem().Open(folder.path() + "/pipe").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PosixFileSystem().Open(folder.path()).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(::symlink("/etc/passwd", (folder.path() + "/link").c_str()), 0);
  EXPECT_EQ(PosixFileSystem().Open(folder.path() + "/link").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PosixFileSystem().Open(folder.path() + "/absent").status().code(), StatusCode::kNotFound);
}

TEST(PosixFileSystem, NeverWritesThroughALink) {
  TemporaryFolder folder;
  const std::string victim = folder.path() + "/victim", link = folder.path() + "/link";
  ASSERT_TRUE(WriteSmallFile(PosixFileSystem(), victim, "precious").ok());
  ASSERT_EQ(::symlink(victim.c_str(), link.c_str()), 0);
  ASSERT_TRUE(WriteSmallFile(PosixFileSystem(), link, "new").ok());
  EXPECT_EQ(*ReadSmallFile(PosixFileSystem(), victim, 100), "precious");
  EXPECT_EQ(*ReadSmallFile(PosixFileSystem(), link, 100), "new");
}

TEST(PosixFileSystem, ARootThatIsAFileIsAClearError) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  ASSERT_TRUE(WriteSmallFile(PosixFileSystem(), file, "x").ok());
  World world(file, PosixFileSystem());
  const Status status = world.Write(0, 1, 1);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_TRUE(Names(status.message(), file)) << status.ToString();
}

TEST(PosixFileSystem, AReadOnlyRootIsAClearError) {
  TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  World world(folder.path() + "/root", PosixFileSystem());
  // Root may write everywhere, so it becomes somebody else for the moment.
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const Status status = world.Write(0, 1, 1);
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Names(status.message(), folder.path(), "right")) << status.ToString();
}

TEST(PosixFileSystem, AFileSizeLimitIsToldWithoutTheSignalThatWouldEndTheProcess) {
  TemporaryFolder folder;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  World world(folder.path(), PosixFileSystem(), 1 << 14);
  const Status status = world.Write(0, 1, 1);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Names(status.message(), "limit", "bytes needed")) << status.ToString();
}

TEST(FileError, SaysWhatToDoForEveryErrorThatADiskGives) {
  const std::vector<std::pair<int, StatusCode>> meanings = {
      {ENOSPC, StatusCode::kResourceExhausted},
      {EDQUOT, StatusCode::kResourceExhausted},
      {EFBIG, StatusCode::kResourceExhausted},
      {EMFILE, StatusCode::kResourceExhausted},
      {ENFILE, StatusCode::kResourceExhausted},
      {ENOMEM, StatusCode::kResourceExhausted},
      {EACCES, StatusCode::kPermissionDenied},
      {EPERM, StatusCode::kPermissionDenied},
      {EROFS, StatusCode::kPermissionDenied},
      {ENOENT, StatusCode::kNotFound},
      {ENOTDIR, StatusCode::kInvalidArgument},
      {ENAMETOOLONG, StatusCode::kInvalidArgument},
      {EIO, StatusCode::kDataLoss},
      {ESTALE, StatusCode::kUnavailable},
  };
  for (const auto& [error, code] : meanings) {
    const Status status = FileError(error, "write", "/disk/x", 4242);
    EXPECT_EQ(status.code(), code) << error;
    EXPECT_TRUE(Names(status.message(), "/disk/x", "4242 bytes needed")) << status.ToString();
  }
}

}  // namespace
}  // namespace kintsugi::checkpoint
