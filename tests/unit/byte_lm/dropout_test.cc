#include "integrations/examples/byte_lm/dropout.h"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi::byte_lm {
namespace {

std::vector<float> Mask(DropoutGenerator& generator, double probability, size_t count) {
  std::vector<float> mask(count, -1.0f);
  generator.FillMask(probability, count, mask.data());
  return mask;
}

TEST(Dropout, RestoreGivesBackTheVeryNextMasks) {
  DropoutGenerator generator(1, 0, 2);
  Mask(generator, 0.1, 33);
  std::vector<uint8_t> state;
  generator.Capture(&state);
  EXPECT_EQ(state.size(), DropoutGenerator::kStateBytes);
  const std::vector<float> first = Mask(generator, 0.3, 500), second = Mask(generator, 0.3, 77);
  EXPECT_NE(std::vector<float>(first.begin(), first.begin() + 77), second);
  ASSERT_TRUE(generator.Restore(state.data(), state.size()).ok());
  EXPECT_EQ(Mask(generator, 0.3, 500), first);
  DropoutGenerator other(99, 0, 2);
  ASSERT_TRUE(other.Restore(state.data(), state.size()).ok());
  EXPECT_EQ(Mask(other, 0.3, 500), first);
  EXPECT_EQ(Mask(other, 0.3, 77), second);
}

TEST(Dropout, RestoreRefusesTheWrongLengthAndChangesNothing) {
  DropoutGenerator generator(1, 0, 2), untouched(1, 0, 2);
  const std::vector<uint8_t> bytes(DropoutGenerator::kStateBytes - 1, 7);
  EXPECT_EQ(generator.Restore(bytes.data(), bytes.size()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Mask(generator, 0.5, 64), Mask(untouched, 0.5, 64));
}

TEST(Dropout, DropsTheAskedShareAndKeepsTheMean) {
  DropoutGenerator generator(1, 0, 2);
  constexpr size_t kCount = 200000;
  const std::vector<float> mask = Mask(generator, 0.2, kCount);
  size_t dropped = 0;
  double sum = 0;
  for (float value : mask) {
    dropped += value == 0.0f;
    sum += value;
    ASSERT_TRUE(value == 0.0f || value == 1.25f);
  }
  EXPECT_NEAR(static_cast<double>(dropped) / kCount, 0.2, 0.01);
  EXPECT_NEAR(sum / kCount, 1.0, 0.01);
}

TEST(Dropout, RanksAndSeedsHaveTheirOwnMasks) {
  DropoutGenerator a(1, 0, 2), b(1, 1, 2), c(2, 0, 2), d(1, 0, 2);
  const std::vector<float> mask = Mask(a, 0.5, 256);
  EXPECT_NE(mask, Mask(b, 0.5, 256));
  EXPECT_NE(mask, Mask(c, 0.5, 256));
  EXPECT_EQ(mask, Mask(d, 0.5, 256));
}

}  // namespace
}  // namespace kintsugi::byte_lm
