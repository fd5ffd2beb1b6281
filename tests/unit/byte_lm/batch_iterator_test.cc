#include "integrations/examples/byte_lm/batch_iterator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/permutation.h"

namespace kintsugi::byte_lm {
namespace {

// A text whose windows are all different: window i starts with its own number.
TextData Numbered(uint64_t windows, int64_t context) {
  std::string bytes;
  for (uint64_t i = 0; i < windows; ++i) {
    std::string window = std::to_string(i);
    window.resize(static_cast<size_t>(context), '.');
    bytes += window;
  }
  return TextData::FromBytes(bytes + "!");
}

TEST(Permutation, VisitsEveryPlaceOnce) {
  for (uint64_t size : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    const Permutation shuffle(size * 31, size);
    std::vector<bool> seen(size, false);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t place = shuffle.At(i);
      ASSERT_LT(place, size);
      EXPECT_FALSE(seen[place]) << size;
      seen[place] = true;
    }
  }
}

TEST(Permutation, MovesMostPlacesAndDependsOnTheSeed) {
  const Permutation a(1, 1000), b(2, 1000);
  int fixed = 0, equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    fixed += a.At(i) == i;
    equal += a.At(i) == b.At(i);
  }
  EXPECT_LT(fixed, 20);
  EXPECT_LT(equal, 20);
}

TEST(BatchIterator, ConsumesEverySampleExactlyOncePerEpochOverAllRanks) {
  constexpr int64_t kContext = 8, kBatch = 3;
  constexpr int kRanks = 4;
  constexpr uint64_t kWindows = 101;  // no multiple of the global batch: batches span epochs
  const TextData text = Numbered(kWindows, kContext);
  const auto iterator = BatchIterator::Create(text, 5, kContext, kBatch, kRanks);
  ASSERT_TRUE(iterator.ok());
  ASSERT_EQ(iterator->windows_per_epoch(), kWindows);
  constexpr uint64_t kSteps = 101;  // 12 samples a step: exactly twelve epochs
  std::map<uint64_t, int> uses;
  std::set<uint64_t> ids;
  Batch batch;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) {
      iterator->Fill(Step(step), rank, &batch);
      ASSERT_EQ(batch.sample_ids.size(), static_cast<size_t>(kBatch));
      for (size_t i = 0; i < batch.sample_ids.size(); ++i) {
        EXPECT_TRUE(ids.insert(batch.sample_ids[i]).second) << "sample " << batch.sample_ids[i] << " twice";
        ++uses[batch.sample_ids[i] % kWindows];
        // The id says which window it is.
        const std::string number = std::to_string(batch.sample_ids[i] % kWindows);
        const auto row = batch.windows.begin() + static_cast<std::ptrdiff_t>(i) * (kContext + 1);
        EXPECT_EQ(std::string(row, row + static_cast<std::ptrdiff_t>(number.size())), number);
      }
    }
  }
  EXPECT_EQ(uses.size(), kWindows);
  for (const auto& [window, count] : uses) EXPECT_EQ(count, 12) << "window " << window;
  EXPECT_EQ(*ids.rbegin(), 12 * kWindows - 1);
}

TEST(BatchIterator, IsAPureFunctionOfStepAndRank) {
  const TextData text = Numbered(50, 8);
  const auto iterator = BatchIterator::Create(text, 5, 8, 2, 2), again = BatchIterator::Create(text, 5, 8, 2, 2);
  ASSERT_TRUE(iterator.ok() && again.ok());
  Batch first, second;
  iterator->Fill(Step(9), 1, &first);
  iterator->Fill(Step(3), 0, &second);
  again->Fill(Step(9), 1, &second);
  EXPECT_EQ(first.sample_ids, second.sample_ids);
  EXPECT_EQ(first.windows, second.windows);
}

TEST(BatchIterator, ShufflesEveryEpochAnew) {
  const TextData text = Numbered(60, 8);
  const auto iterator = BatchIterator::Create(text, 5, 8, 60, 1);
  ASSERT_TRUE(iterator.ok());
  Batch first, second;
  iterator->Fill(Step(1), 0, &first);
  iterator->Fill(Step(2), 0, &second);
  EXPECT_FALSE(std::is_sorted(first.sample_ids.begin(), first.sample_ids.end()));
  for (uint64_t& id : second.sample_ids) id -= 60;
  EXPECT_NE(first.sample_ids, second.sample_ids);
}

TEST(BatchIterator, TheSplitOverRanksDoesNotChangeTheGlobalBatch) {
  const TextData text = Numbered(50, 8);
  const auto split = BatchIterator::Create(text, 5, 8, 2, 4), whole = BatchIterator::Create(text, 5, 8, 8, 1);
  ASSERT_TRUE(split.ok() && whole.ok());
  Batch all, part;
  whole->Fill(Step(4), 0, &all);
  std::vector<uint64_t> joined;
  for (int rank = 0; rank < 4; ++rank) {
    split->Fill(Step(4), rank, &part);
    joined.insert(joined.end(), part.sample_ids.begin(), part.sample_ids.end());
  }
  EXPECT_EQ(joined, all.sample_ids);
}

TEST(BatchIterator, RefusesATextShorterThanOneWindow) {
  const TextData text = TextData::FromBytes("12345678");
  const auto iterator = BatchIterator::Create(text, 5, 8, 2, 1);
  EXPECT_EQ(iterator.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(iterator.status().message().find("8 bytes"), std::string::npos);
  EXPECT_NE(iterator.status().message().find("9"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::byte_lm
