// Page tables that are filled before anybody touches what they show: seen in the kernel's count of this mapping.
#include "replica/stream/pages_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace kintsugi {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Of the mapping that begins at `at`: KiB of it that the page tables show.
uint64_t ShownKib(const uint8_t* at) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(at) << '-';
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.starts_with(begin.str());
    if (found && line.starts_with("Rss:")) return std::stoull(line.substr(4));
  }
  return 0;
}

TEST(PagesAhead, FillsWhatFollowsInTheMappingUntouched) {
  constexpr uint64_t kBytes = 32 * kMiB;
  const int file = memfd_create("pages-ahead", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  void* const filled = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(filled, MAP_FAILED);
  std::memset(filled, 1, kBytes);
  void* const fresh = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(fresh, MAP_FAILED);
  const auto* const at = static_cast<const uint8_t*>(fresh);
  ASSERT_EQ(ShownKib(at), 0u);
  if (madvise(fresh, 4096, 22) != 0) GTEST_SKIP() << "this kernel has no MADV_POPULATE_READ (5.14)";
  {
    PagesAhead pages;
    pages.Read(at, kMiB, at + kBytes);
    EXPECT_GE(ShownKib(at), 1024u);
    for (int i = 0; i < 6000 && ShownKib(at) < kBytes / 1024; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(ShownKib(at), kBytes / 1024);
  }
  munmap(fresh, kBytes);
  munmap(filled, kBytes);
  close(file);
}

}  // namespace
}  // namespace kintsugi
