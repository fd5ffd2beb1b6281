// Two tensor-parallel ranks are the same network as one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/unit/byte_lm/cluster.h"

namespace kintsugi::byte_lm {
namespace {

size_t GlobalIndex(const Parameter& p, size_t local) {
  if (p.local_shape.size() == 1) return local + static_cast<size_t>(p.global_offset[0]);
  const size_t columns = static_cast<size_t>(p.local_shape[1]);
  const size_t row = local / columns + static_cast<size_t>(p.global_offset[0]);
  return row * static_cast<size_t>(p.global_shape[1]) + local % columns + static_cast<size_t>(p.global_offset[1]);
}

// Compares a flat buffer of a split rank with the same elements of an unsplit one.
void ExpectSameElements(const ParameterTable& split, const float* part, const ParameterTable& unsplit,
                        const float* whole, float tolerance) {
  for (size_t i = 0; i < split.parameters().size(); ++i) {
    const Parameter& p = split[i];
    float largest = 0, difference = 0;
    for (size_t j = 0; j < p.count; ++j) {
      const float expected = whole[unsplit[i].offset + GlobalIndex(p, j)];
      largest = std::max(largest, std::fabs(expected));
      difference = std::max(difference, std::fabs(part[p.offset + j] - expected));
    }
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-3f)) << p.name;
  }
}

TEST(TensorParallel, StartsFromTheSameWeightsAsOneRank) {
  Cluster one(TinyOptions(), Text(), 1, 1, 1), two(TinyOptions(), Text(), 2, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    ExpectSameElements(two[rank].table(), two[rank].parameters(), one[0].table(), one[0].parameters(), 0.0f);
  }
}

TEST(TensorParallel, LossAndGradientsMatchOneRankWithDropout) {
  TrainerOptions options = TinyOptions();
  options.model.dropout = 0.2;
  Cluster one(options, Text(), 1, 1, 1), two(options, Text(), 2, 2, 1);
  const auto forward_backward = [](Trainer& trainer) {
    KINTSUGI_RETURN_IF_ERROR(trainer.Forward(Step(1)));
    KINTSUGI_RETURN_IF_ERROR(trainer.Backward());
    KINTSUGI_RETURN_IF_ERROR(trainer.SyncGradients());
    return trainer.SyncNorm();
  };
  for (const Status& status : one.Each(forward_backward)) ASSERT_TRUE(status.ok()) << status.ToString();
  for (const Status& status : two.Each(forward_backward)) ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_NEAR(two[0].loss(), one[0].loss(), 1e-5);
  EXPECT_NEAR(two[0].gradient_norm(), one[0].gradient_norm(), 1e-4 * one[0].gradient_norm());
  EXPECT_EQ(two[0].loss(), two[1].loss());
  EXPECT_EQ(two[0].gradient_norm(), two[1].gradient_norm());
  for (int rank = 0; rank < 2; ++rank) {
    ExpectSameElements(two[rank].table(), two[rank].gradients(), one[0].table(), one[0].gradients(), 1e-3f);
  }
}

TEST(TensorParallel, ReplicatedParametersKeepEqualBits) {
  Cluster two(TinyOptions(), Text(), 4, 2, 2);
  const auto losses = two.Train(1, 6);
  ASSERT_TRUE(losses.ok()) << losses.status().ToString();
  for (const Parameter& p : two[0].table().parameters()) {
    const bool equal =
        std::memcmp(two[0].parameters() + p.offset, two[1].parameters() + p.offset, p.count * sizeof(float)) == 0;
    // Split parameters hold different parts of one tensor, so equal bits there would mean a wrong split.
    EXPECT_EQ(equal, p.replicated) << p.name;
  }
}

TEST(TensorParallel, AFailedCollectiveLeavesForwardAndBackwardAtOnce) {
  const TrainerOptions options = TinyOptions();
  // Two layers, two collectives each, in forward and again in backward.
  const int collectives = static_cast<int>(options.model.layers) * 4;
  for (int call = 0; call < collectives; ++call) {
    Cluster two(options, Text(), 2, 2, 1);
    two.group("tp", {0, 1}).BreakAtCall(call);
    bool in_forward[2] = {false, false};
    const std::vector<Status> statuses = two.Each([&](Trainer& trainer) {
      const Status status = trainer.Forward(Step(1));
      in_forward[trainer.layout().tp_rank] = !status.ok();
      return status.ok() ? trainer.Backward() : status;
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(statuses[static_cast<size_t>(rank)].code(), StatusCode::kCommFailure) << "call " << call;
      // A member may still finish the collective before the break; it never gets further than the next one.
      EXPECT_TRUE(in_forward[rank] || call >= collectives / 2) << "call " << call;
    }
  }
}

}  // namespace
}  // namespace kintsugi::byte_lm
