// The worked examples of the AOA language, by their names in its description.
#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

TEST(AoaExample, E1MergeThenSplit) {
  const Engine engine = MustBuild({{"s0, s1 -> s, axis = 1", "s -> d0, d1, axis = 0"},
                                   {{"s0", Whole({2, 2})}, {"s1", Whole({2, 2})}},
                                   Tensors{{"d0", Whole({1, 4})}, {"d1", Whole({1, 4})}}});
  EXPECT_EQ(Ask(engine, "d0", {{0, 1}, {0, 2}}), "d0[0:1, 0:2] from s0[0:1, 0:2]");
  EXPECT_EQ(Ask(engine, "d1", {{0, 1}, {2, 4}}), "d1[0:1, 2:4] from s1[1:2, 0:2]");
  EXPECT_EQ(AskAll(engine, "d1"), "d1[0:1, 0:2] from s0[1:2, 0:2]; d1[0:1, 2:4] from s1[1:2, 0:2]");
  EXPECT_EQ(Ask(engine, "d1.moment1_0", {{0, 1}, {0, 4}}),
            "d1.moment1_0[0:1, 0:2] from s0.moment1_0[1:2, 0:2]; d1.moment1_0[0:1, 2:4] from s1.moment1_0[1:2, 0:2]");
  EXPECT_EQ(Ask(engine, "d1.w_0", {{0, 1}, {0, 4}}),
            "d1.w_0[0:1, 0:2] from s0.w_0[1:2, 0:2]; d1.w_0[0:1, 2:4] from s1.w_0[1:2, 0:2]");
}

TEST(AoaExample, E2Cast) {
  const Engine engine = MustBuild({{"s0 -> d0, dtype=\"float32\""},
                                   {{"s0", Whole({2, 2}, DType::kInt32)}},
                                   Tensors{{"d0", Whole({2, 2}, DType::kFloat32)}}});
  EXPECT_EQ(AskAll(engine, "d0"), "d0[0:2, 0:2] from s0[0:2, 0:2] by float32");
}

TEST(AoaExample, E3Add) {
  const Engine engine = MustBuild({{"_ -> d0"}, {}, Tensors{{"d0", Whole({2, 2})}}});
  const auto pieces = engine.FindShardSources({"d0", {{0, 2}, {0, 2}}, std::nullopt});
  ASSERT_TRUE(pieces.ok());
  EXPECT_TRUE(pieces->empty());
  EXPECT_TRUE(engine.outputs().at("d0").is_added);
}

TEST(AoaExample, E4FusedFfnThenTranspose) {
  const Engine engine = MustBuild({{"K -> temp_var, fused_ffn", "temp_var^T -> new_K"},
                                   {{"K", Sharded({2, 8}, 1, 2)}},
                                   Tensors{{"new_K", Sharded({8, 2}, 0, 4)}}});
  EXPECT_EQ(Ask(engine, "new_K", {{0, 2}, {0, 1}}),
            "new_K[0:1, 0:1] from K[0:1, 0:1] by [1, 0]; new_K[1:2, 0:1] from K[0:1, 2:3] by [1, 0]");
}

Engine T1() {
  return MustBuild({{"s0, s1 -> s, axis = 1", "s -> s, dtype = 'float64'", "s^T -> d", "d -> d0, d1, axis = 1"},
                    {{"s0", Whole({2, 2})}, {"s1", Whole({2, 2})}},
                    Tensors{{"d0", Whole({4, 1}, DType::kFloat64)}, {"d1", Whole({4, 1}, DType::kFloat64)}}});
}

TEST(AoaExample, T1MergeCastTransposeSplit) {
  const Engine engine = T1();
  EXPECT_EQ(Ask(engine, "d0", {{2, 4}, {0, 1}}), "d0[2:4, 0:1] from s1[0:1, 0:2] by float64, [1, 0]");
  EXPECT_EQ(Ask(engine, "d1", {{0, 2}, {0, 1}}), "d1[0:2, 0:1] from s0[1:2, 0:2] by float64, [1, 0]");
  EXPECT_EQ(AskAll(engine, "d1"),
            "d1[0:2, 0:1] from s0[1:2, 0:2] by float64, [1, 0]; d1[2:4, 0:1] from s1[1:2, 0:2] by float64, [1, 0]");
}

TEST(AoaExample, T1StatesFollowWithoutTheCast) {
  EXPECT_EQ(Ask(T1(), "d0.moment2_0", {{2, 4}, {0, 1}}),
            "d0.moment2_0[2:4, 0:1] from s1.moment2_0[0:1, 0:2] by [1, 0]");
}

TEST(AoaExample, T3FanOutOfOnePart) {
  const Engine engine = MustBuild({{"s0 -> a1, a2, a3, a4, axis = 1", "a2^T -> b2", "a3^T -> b3",
                                    "b2, b3 -> d0, axis = 1", "a3, a4 -> d1, axis = 0"},
                                   {{"s0", Whole({3, 4})}},
                                   Tensors{{"d0", Whole({1, 6})}, {"d1", Whole({6, 1})}}});
  EXPECT_EQ(AskAll(engine, "d0"), "d0[0:1, 0:3] from s0[0:3, 1:2] by [1, 0]; d0[0:1, 3:6] from s0[0:3, 2:3] by [1, 0]");
  EXPECT_EQ(AskAll(engine, "d1"), "d1[0:3, 0:1] from s0[0:3, 2:3]; d1[3:6, 0:1] from s0[0:3, 3:4]");
}

}  // namespace
}  // namespace kintsugi::aoa
