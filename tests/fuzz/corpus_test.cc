// Replays a target's corpus: whatever a fuzzer once found is a test from then on. Built once per target.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

struct Input {
  std::string name;
  std::string bytes;
};

std::vector<Input> Corpus() {
  std::vector<Input> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(KINTSUGI_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
  }
  return corpus;
}

TEST(FuzzTarget, AcceptsEverySeed) {
  const std::vector<std::string> seeds = Seeds();
  ASSERT_FALSE(seeds.empty());
  for (size_t i = 0; i < seeds.size(); ++i) EXPECT_TRUE(Try(seeds[i])) << "seed " << i;
}

TEST(FuzzTarget, AcceptsNoSeedThatIsCutShortInItsMiddle) {
  size_t refused = 0;
  // At some hundred places of a long one.
  for (const std::string& seed : Seeds())
    for (size_t size = 0; size < seed.size(); size += std::max<size_t>(1, seed.size() / 256))
      refused += !Try(std::string_view(seed).substr(0, size));
  EXPECT_GT(refused, 0u);
}

// A corpus from which all is refused, or nothing, tests only half of the code.
TEST(FuzzTarget, KeepsItsPromisesOnTheWholeCorpus) {
  size_t accepted = 0, refused = 0;
  for (const Input& input : Corpus()) {
    SCOPED_TRACE(input.name);
    EXPECT_NO_THROW(++(Try(input.bytes) ? accepted : refused)) << "corpus file " << input.name;
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 0u);
}

// Neighbours of the corpus: every file with some bits turned.
TEST(FuzzTarget, KeepsItsPromisesAroundTheCorpus) {
  Random random(20261121);
  for (const Input& input : Corpus()) {
    for (int round = 0; round < 20 && !input.bytes.empty(); ++round) {
      std::string bytes = input.bytes;
      for (uint64_t turns = 1 + random.Below(3); turns > 0; --turns)
        bytes[random.Below(bytes.size())] ^= static_cast<char>(1u << random.Below(8));
      EXPECT_NO_THROW((void)Try(bytes)) << "corpus file " << input.name << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace kintsugi::fuzz
