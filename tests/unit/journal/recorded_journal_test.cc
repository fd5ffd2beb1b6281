// A journal that an older program wrote is still read for what it was.
//
// recorded_journal.txt: the file's bytes; then a line for each input: its instant, how many actions came out, their digest,
// whether the core failed, and the input as words. It is of 2026-11-25 and format 1, and never changed: who changes what a
// record means raises kVersion (runtime/journal/input.h) instead.
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/journal/reader.h"
#include "runtime/journal/text.h"
#include "tests/support/hex.h"

namespace kintsugi::journal {
namespace {

TEST(RecordedJournal, IsStillReadForWhatItWas) {
  std::ifstream file(KINTSUGI_RECORDED "/recorded_journal.txt");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  auto reader = JournalReader::Of(FromHex(line), "recorded");
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ((*reader)->preamble().build, "test");
  EXPECT_EQ((*reader)->preamble().term, (Term{3, 9}));
  EXPECT_EQ(WriteFields((*reader)->preamble().policy), "world_size=8 save_directory=\"a folder\"");
  std::vector<Input> inputs;
  size_t read = 0;
  while (true) {
    const Result<bool> more = (*reader)->Next(&inputs);
    ASSERT_TRUE(more.ok()) << more.status().ToString();
    if (!*more) break;
    for (const Input& input : inputs) {
      ASSERT_TRUE(std::getline(file, line)) << "more inputs than were recorded";
      EXPECT_EQ(std::to_string(input.now.nanoseconds()) + " " + std::to_string(input.actions) + " " +
                    std::to_string(input.digest) + " " + std::to_string(input.threw) + " " +
                    WriteInput(input, {3, 9}, TimePoint()),
                line);
      ++read;
    }
  }
  EXPECT_EQ(read, 153u);
  EXPECT_EQ((*reader)->end(), EndReason::kEnded);
}

}  // namespace
}  // namespace kintsugi::journal
