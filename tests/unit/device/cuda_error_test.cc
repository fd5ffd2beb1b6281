#include "runtime/device/cuda_error.h"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi::device {
namespace {

// As an H200 answered after such a kernel: 700, 710, 716, 719, and from then on to every call.
const std::set<int> kSticky{214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999};
const std::set<int> kNoDevice{35, 46, 100, 101, 102, 802, 803, 804, 805, 806, 807, 808, 809};

TEST(CudaError, ThatACallerDealsWithIsNoFault) {
  int known = 0;
  for (int error = 0; error < 1000; ++error) {
    const auto found = ClassifyCudaError(error, 0, false);
    known += found.known ? 1 : 0;
    if (!found.known || kSticky.count(error) != 0 || kNoDevice.count(error) != 0) continue;
    EXPECT_EQ(found.rung, CudaRung::kNone) << found.name;
    EXPECT_FALSE(found.sticky || found.context_lost);
  }
  EXPECT_EQ(known, 133) << "as many as CUDA 13.0 has";
}

TEST(CudaError, WithoutADeviceIsRepairedElsewhere) {
  for (int error : kNoDevice) EXPECT_EQ(ClassifyCudaError(error, 0, true).rung, CudaRung::kRespawnElsewhere) << error;
}

TEST(CudaError, ThatIsStickyLosesTheContextAndIsNeverRebuiltInPlace) {
  for (int error : kSticky) {
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
