#include "runtime/device/cuda_error.h"

#include <gtest/gtest.h>

namespace kintsugi::device {
namespace {

TEST(CudaError, ThatACallerDealsWithIsNoFault) {
  for (int error : {0, 1, 2, 600}) {
    const auto found = ClassifyCudaError(error, 0, false);
    EXPECT_EQ(found.rung, CudaRung::kNone) << found.name;
    EXPECT_FALSE(found.sticky || found.context_lost);
    EXPECT_TRUE(found.known);
  }
}

TEST(CudaError, WithoutADeviceIsRepairedElsewhere) {
  for (int error : {35, 46, 100, 101, 802})
    EXPECT_EQ(ClassifyCudaError(error, 0, true).rung, CudaRung::kRespawnElsewhere) << error;
}

TEST(CudaError, ThatIsStickyLosesTheContextAndIsNeverRebuiltInPlace) {
  for (int error : {214, 220, 226, 700, 702, 714, 719, 911}) {
    const auto lost = ClassifyCudaError(error, error, true);
    EXPECT_TRUE(lost.sticky && lost.context_lost) << lost.name;
    EXPECT_EQ(lost.rung, CudaRung::kRespawn) << lost.name;
  }
}

TEST(CudaError, WithALivingContextIsPatchedWhereTheDamageIsNamed) {
  EXPECT_EQ(ClassifyCudaError(214, 0, true).rung, CudaRung::kPatch);
  EXPECT_EQ(ClassifyCudaError(214, 0, false).rung, CudaRung::kRebuild);
}

TEST(CudaError, WhatTheNextCallSaysCountsForMoreThanTheName) {
  const auto found = ClassifyCudaError(2, 700, false);
  EXPECT_TRUE(found.sticky && found.context_lost);
  EXPECT_EQ(found.rung, CudaRung::kRespawn);
}

TEST(CudaError, ThatIsUnknownIsTakenForSticky) {
  const auto found = ClassifyCudaError(4242, 0, false);
  EXPECT_FALSE(found.known);
  EXPECT_TRUE(found.sticky);
  EXPECT_EQ(found.rung, CudaRung::kRebuild);
  EXPECT_NE(found.name.find("4242"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::device
