#include "runtime/process/shared_page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kintsugi {
namespace {

using ::testing::HasSubstr;

TEST(SharedPage, BothSidesSeeTheSameWords) {
  Result<SharedPage> launcher = SharedPage::Create();
  ASSERT_TRUE(launcher.ok()) << launcher.status().ToString();
  Result<SharedPage> agent = SharedPage::Open(launcher->fd());
  ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  EXPECT_EQ(agent->fd(), -1);
  agent->words().beat.fetch_add(1);
  agent->words().gate_word.store(42);
  EXPECT_EQ(launcher->words().beat.load(), 1u);
  EXPECT_EQ(launcher->words().gate_word.load(), 42u);
  ReportWriter writer(agent->words().reports);
  ASSERT_TRUE(writer.Publish(7, 0.5, {}));
  ReportReader reader(launcher->words().reports);
  EXPECT_EQ(reader.Read([](const StepReport& report) { EXPECT_EQ(report.step, 7u); }), 1u);
}

TEST(SharedPage, OutlivesTheDescriptorAndTheOtherSide) {
  Result<SharedPage> launcher = SharedPage::Create();
  ASSERT_TRUE(launcher.ok());
  Result<SharedPage> agent = SharedPage::Open(launcher->fd());
  ASSERT_TRUE(agent.ok());
  launcher->words().progress.store(9);
  { const SharedPage gone = std::move(*launcher); }
  EXPECT_EQ(agent->words().progress.load(), 9u);
}

TEST(SharedPage, LocalPageNeedsNoLauncher) {
  Result<SharedPage> local = SharedPage::CreateLocal();
  ASSERT_TRUE(local.ok());
  EXPECT_EQ(local->fd(), -1);
  EXPECT_EQ(local->words().magic.load(), SharedWords::kMagic);
  EXPECT_EQ(local->words().beat.load(), 0u);
}

TEST(SharedPage, KeepsWritersOnDifferentCacheLines) {
  const auto line = [](auto member) {
    static SharedWords words;
    return (reinterpret_cast<uintptr_t>(&(words.*member)) - reinterpret_cast<uintptr_t>(&words)) / 64;
  };
  EXPECT_NE(line(&SharedWords::gate_word), line(&SharedWords::beat));
  EXPECT_NE(line(&SharedWords::beat), line(&SharedWords::progress));
  EXPECT_NE(line(&SharedWords::progress), line(&SharedWords::fired_injections));
  EXPECT_EQ(alignof(SharedWords), 64u);
}

Status OpenBytes(size_t size, const std::string& head, bool sealed) {
  const int fd = ::memfd_create("kintsugi-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
  EXPECT_EQ(::pwrite(fd, head.data(), head.size(), 0), static_cast<ssize_t>(head.size()));
  if (sealed) {
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  }
  const Status status = SharedPage::Open(fd).status();
  ::close(fd);
  return status;
}

std::string Head(uint64_t magic, uint64_t version, uint64_t size) {
  const uint64_t words[3] = {magic, version, size};
  return std::string(reinterpret_cast<const char*>(words), sizeof(words));
}

TEST(SharedPage, RefusesWhatIsNoPage) {
  EXPECT_EQ(SharedPage::Open(-1).status().code(), StatusCode::kInvalidArgument);
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(SharedPage::Open(::fileno(file)).status().code(), StatusCode::kInvalidArgument);
  std::fclose(file);
  constexpr size_t kSize = sizeof(SharedWords);
  const std::string good = Head(SharedWords::kMagic, SharedWords::kVersion, kSize);
  EXPECT_TRUE(OpenBytes(kSize, good, true).ok());
  EXPECT_EQ(OpenBytes(kSize, good, false).code(), StatusCode::kInvalidArgument) << "could be truncated under a reader";
  EXPECT_EQ(OpenBytes(kSize, "not a page", true).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenBytes(0, "", true).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenBytes(4096, good, true).code(), StatusCode::kInvalidArgument) << "cut short";
  const Status version = OpenBytes(kSize, Head(SharedWords::kMagic, 99, kSize), true);
  EXPECT_EQ(version.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(version.message(), HasSubstr("version 99"));
  EXPECT_EQ(OpenBytes(kSize, Head(SharedWords::kMagic, SharedWords::kVersion, 1), true).code(),
            StatusCode::kFailedPrecondition);
}

TEST(SharedPage, CannotBeTruncatedUnderAReader) {
  Result<SharedPage> page = SharedPage::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_NE(::ftruncate(page->fd(), 0), 0);
}

}  // namespace
}  // namespace kintsugi
