#include "callbacks/state/experts.h"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi {
namespace {

TEST(GlobalExpertKey, CountsOverAllRanksOfTheGroup) {
  EXPECT_EQ(*GlobalExpertKey("experts.0.w", 0, 4), "experts.0.w");
  EXPECT_EQ(*GlobalExpertKey("experts.0.w", 3, 4), "experts.12.w");
  EXPECT_EQ(*GlobalExpertKey("decoder.layers.7.mlp.experts.local_experts.3.linear_fc1.weight", 2, 4),
            "decoder.layers.7.mlp.experts.local_experts.11.linear_fc1.weight");
  EXPECT_EQ(*GlobalExpertKey("model.layers.1.mlp.experts.1", 1, 2), "model.layers.1.mlp.experts.3");
  EXPECT_EQ(*GlobalExpertKey("optimizer.exp_avg.experts.0.experts.1.w", 1, 2),
            "optimizer.exp_avg.experts.0.experts.3.w");
}

TEST(GlobalExpertKey, NoTwoTensorsOfAGroupHaveOneName) {
  std::set<std::string> names;
  for (int rank = 0; rank < 8; ++rank)
    for (int expert = 0; expert < 16; ++expert)
      names.insert(*GlobalExpertKey("experts." + std::to_string(expert) + ".w", rank, 16));
  EXPECT_EQ(names.size(), 128u);
}

TEST(GlobalExpertKey, LeavesOtherNamesAsTheyAre) {
  for (const char* key :
       {"decoder.layers.0.w", "experts.w.0", "my_experts.0.w", "experts", "shared_experts.linear", ""})
    EXPECT_EQ(*GlobalExpertKey(key, 3, 4), key);
}

TEST(GlobalExpertKey, RefusesANumberThatIsNoneOfTheRanks) {
  for (const char* key : {"experts.4.w", "experts.99999999999999999999.w"}) {
    const auto refused = GlobalExpertKey(key, 1, 4);
    ASSERT_FALSE(refused.ok()) << key;
    EXPECT_NE(refused.status().message().find("has experts 0 to 3: is the name global already?"), std::string::npos);
  }
  EXPECT_FALSE(GlobalExpertKey("experts.0.w", -1, 4).ok());
  EXPECT_FALSE(GlobalExpertKey("experts.0.w", 0, 0).ok());
}

}  // namespace
}  // namespace kintsugi
