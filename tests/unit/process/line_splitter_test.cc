#include "runtime/process/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/random.h"

namespace kintsugi {
namespace {

std::vector<std::string> Split(const std::string& text, size_t piece, size_t max_line) {
  LineSplitter splitter(max_line);
  std::vector<std::string> lines;
  const auto collect = [&lines](std::string_view line) { lines.emplace_back(line); };
  for (size_t at = 0; at < text.size(); at += piece) splitter.Feed(std::string_view(text).substr(at, piece), collect);
  splitter.Flush(collect);
  return lines;
}

TEST(LineSplitter, KeepsEmptyLinesAndTheUnfinishedLast) {
  EXPECT_THAT(Split("a\n\nb\nrest", 3, 100), testing::ElementsAre("a", "", "b", "rest"));
  EXPECT_THAT(Split("", 3, 100), testing::IsEmpty());
  EXPECT_THAT(Split("a\n", 1, 100), testing::ElementsAre("a"));
}

TEST(LineSplitter, ALineOfExactlyTheLimitStaysWhole) {
  EXPECT_THAT(Split("abcd\nefghij\n", 2, 4), testing::ElementsAre("abcd", "efgh", "ij"));
}

// The obvious version: the whole text at once.
std::vector<std::string> SlowSplit(const std::string& text, size_t max_line) {
  std::vector<std::string> lines;
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      lines.push_back(line);
      line.clear();
      continue;
    }
    if (line.size() == max_line) {
      lines.push_back(line);
      line.clear();
    }
    line += c;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

TEST(LineSplitter, AgreesWithTheObviousVersion) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t i = random.Below(60); i > 0; --i) text += random.Below(4) == 0 ? '\n' : 'x';
    const size_t max_line = 1 + random.Below(8);
    ASSERT_EQ(Split(text, 1 + random.Below(9), max_line), SlowSplit(text, max_line)) << "round " << round;
  }
}

}  // namespace
}  // namespace kintsugi
