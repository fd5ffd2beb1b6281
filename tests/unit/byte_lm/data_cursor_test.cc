#include "integrations/examples/byte_lm/data_cursor.h"

#include <gtest/gtest.h>

namespace kintsugi::byte_lm {
namespace {

TEST(DataCursor, FollowsFromTheStepAndForgetsAbandonedOnes) {
  DataCursor cursor(12);
  EXPECT_EQ(cursor.Begin(Step(1)), 0u);
  EXPECT_EQ(cursor.Begin(Step(2)), 12u);
  EXPECT_EQ(cursor.Begin(Step(2)), 12u);
  EXPECT_EQ(cursor.Begin(Step(5)), 48u);
}

TEST(DataCursor, GoesOnWithAnotherGlobalBatchWhereTheFirstEnded) {
  DataCursor first(12);
  for (uint64_t step = 1; step <= 6; ++step) first.Begin(Step(step));
  std::vector<uint8_t> saved;
  first.Capture(&saved);
  ASSERT_EQ(saved.size(), DataCursor::kStateBytes);
  DataCursor second(20);
  ASSERT_TRUE(second.Restore(saved.data(), saved.size()).ok());
  EXPECT_EQ(second.Begin(Step(7)), 72u);
  EXPECT_EQ(second.Begin(Step(8)), 92u);
  // And from there once more: what is counted are samples, not steps.
  saved.clear();
  second.Capture(&saved);
  DataCursor third(3);
  ASSERT_TRUE(third.Restore(saved.data(), saved.size()).ok());
  EXPECT_EQ(third.Begin(Step(9)), 112u);
}

TEST(DataCursor, RestoreRefusesTheWrongLengthAndChangesNothing) {
  DataCursor cursor(4);
  cursor.Begin(Step(3));
  const std::vector<uint8_t> bytes(DataCursor::kStateBytes + 1, 1);
  EXPECT_EQ(cursor.Restore(bytes.data(), bytes.size()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(cursor.Begin(Step(4)), 12u);
}

}  // namespace
}  // namespace kintsugi::byte_lm
