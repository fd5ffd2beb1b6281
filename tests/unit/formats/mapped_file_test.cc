// Files of a checkpoint: small ones take no map, and maps that ran out are told as such.
#include "replica/formats/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace kintsugi::formats {
namespace {

int64_t CountMapsOf(const std::string& path) {
  int64_t count = 0;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) count += line.find(path) != std::string::npos;
  return count;
}

TEST(MappedFile, SmallOnesTakeNoMap) {
  const TemporaryFolder folder;
  const std::string small(MappedFile::kSmallBytes, 'a'), large(MappedFile::kSmallBytes + 1, 'b');
  std::ofstream(folder / "small") << small;
  std::ofstream(folder / "large") << large;
  const auto read = MappedFile::Open(folder / "small", "small"), mapped = MappedFile::Open(folder / "large", "large");
  ASSERT_TRUE(read.ok() && mapped.ok());
  EXPECT_EQ((*read)->text(), small);
  EXPECT_EQ((*mapped)->text(), large);
  EXPECT_EQ(CountMapsOf(folder / "small"), 0);
  EXPECT_EQ(CountMapsOf(folder / "large"), 1);
  (*read)->DropPages();
  (*mapped)->DropPages();
  EXPECT_EQ((*read)->text(), small);
  EXPECT_EQ((*mapped)->text(), large);
  EXPECT_TRUE((*read)->CheckUnchanged().ok());
  std::ofstream(folder / "small", std::ios::app) << "more";
  EXPECT_EQ((*read)->CheckUnchanged().code(), StatusCode::kDataLoss);
}

TEST(MappedFile, MapsThatRanOutAreNamed) {
  int64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 300000) GTEST_SKIP() << "vm.max_map_count is " << limit << ": too many to use up";
  const TemporaryFolder folder;
  std::ofstream(folder / "large") << std::string(MappedFile::kSmallBytes + 1, 'b');
  std::ofstream(folder / "small") << "s";
  // Each second page of a region has another protection, so every page is a map.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), pages = static_cast<size_t>(limit) + 1000;
  void* const region = ::mmap(nullptr, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(region, MAP_FAILED);
  size_t used = 0;
  while (used < pages && ::mprotect(static_cast<char*>(region) + used * page, page, PROT_READ) == 0) used += 2;
  const bool is_used_up = used < pages;
  // To split one takes two; the last ones are taken one by one.
  std::array<void*, 64> last{};
  for (size_t i = 0; i < last.size(); ++i)
    last[i] = ::mmap(nullptr, page, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto large = MappedFile::Open(folder / "large", "large"), small = MappedFile::Open(folder / "small", "small");
  ASSERT_EQ(::munmap(region, pages * page), 0);
  for (void* const one : last)
    if (one != MAP_FAILED) ::munmap(one, page);
  ASSERT_TRUE(is_used_up);
  EXPECT_TRUE(small.ok()) << small.status().ToString();
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(large.status().message().find("vm.max_map_count"), std::string::npos) << large.status().message();
}

}  // namespace
}  // namespace kintsugi::formats
