#include "integrations/examples/byte_lm/data_cursor.h"

#include <gtest/gtest.h>

#include <string>

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
  EXPECT_EQ(std::string(saved.begin(), saved.end()), "kintsugi.values 1\n{\"consumed_samples\":72,\"data_step\":6}");
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

TEST(DataCursor, RestoresWhatTheFirstVersionSaved) {
  std::vector<uint8_t> bytes(16);
  bytes[0] = 6;   // steps
  bytes[8] = 72;  // samples
  DataCursor cursor(20);
  ASSERT_TRUE(cursor.Restore(bytes.data(), bytes.size()).ok());
  EXPECT_EQ(cursor.Begin(Step(8)), 92u);
}

TEST(DataCursor, RestoreRefusesOtherBytesAndChangesNothing) {
  DataCursor cursor(4);
  cursor.Begin(Step(3));
  for (const std::string bytes : {"seventeen bytes..", "kintsugi.values 1\n{\"consumed_samples\":72}",
                                  "kintsugi.values 1\n{\"consumed_samples\":72,\"data_step\":-1}",
                                  "kintsugi.values 1\n{\"consumed_samples\":\"72\",\"data_step\":6}"})
    EXPECT_EQ(cursor.Restore(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()).code(),
              StatusCode::kDataLoss)
        << bytes;
  EXPECT_EQ(cursor.Begin(Step(4)), 12u);
}

}  // namespace
}  // namespace kintsugi::byte_lm
