// Optimizer states: they follow their model key, unless a statement names them. Here under Paddle's names; what else they
// may be called is in state_names_test.
#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

Tensor Half() { return Whole({2, 2}, DType::kBFloat16); }
Tensor Scalar() { return Whole({1}); }

// A model key with all its states.
void AddWithStates(Tensors* tensors, const std::string& key, Tensor tensor) {
  for (const char* suffix : {".w_0", ".moment1_0", ".moment2_0"}) (*tensors)[key + suffix] = Whole(tensor.shape);
  for (const char* suffix : {".beta1_pow_acc_0", ".beta2_pow_acc_0"}) (*tensors)[key + suffix] = Scalar();
  (*tensors)[key] = std::move(tensor);
}

TEST(AoaStates, FollowWithoutCastsAndWithoutTypeCheck) {
  Tensors source, destination;
  AddWithStates(&source, "a", Half());
  AddWithStates(&destination, "d", Whole({2, 2}));
  const Engine engine = MustBuild({{"a -> t, dtype='float32'", "t^T -> d"}, source, destination, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2, 0:2] from a[0:2, 0:2] by float32, [1, 0]");
  EXPECT_EQ(Ask(engine, {"d.moment1_0", {{0, 1}, {0, 2}}, DType::kFloat64}),
            "d.moment1_0[0:1, 0:2] from a.moment1_0[0:2, 0:1] by [1, 0]");
  EXPECT_TRUE(engine.dropped_states().empty());
}

TEST(AoaStates, ScalarsComeWholeFromTheFirstSourceInAnswerOrder) {
  Tensors source;
  AddWithStates(&source, "b", Half());
  AddWithStates(&source, "a", Half());
  const Engine engine = MustBuild({{"b, a -> t", "t -> d0, d1, axis=0"}, source, std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "d0.beta1_pow_acc_0", {{0, 1}}), "d0.beta1_pow_acc_0[0:1] from b.beta1_pow_acc_0[0:1]");
  EXPECT_EQ(Ask(engine, "d1.beta1_pow_acc_0", {{0, 1}}), "d1.beta1_pow_acc_0[0:1] from a.beta1_pow_acc_0[0:1]");
  const Engine merged = MustBuild({{"b, a -> d"}, source, std::nullopt, {}});
  EXPECT_EQ(Ask(merged, "d.beta2_pow_acc_0", {{0, 1}}), "d.beta2_pow_acc_0[0:1] from b.beta2_pow_acc_0[0:1]");
  EXPECT_NE(Ask(merged, "d.beta2_pow_acc_0", {{0, 2}}).find("a scalar state is taken whole"), std::string::npos);
}

TEST(AoaStates, EveryBranchOfAFanOutGetsTheSameScalar) {
  Tensors source;
  AddWithStates(&source, "a", Half());
  const Engine engine = MustBuild({{"a -> d0, d1, axis=0", "a -> d2"}, source, std::nullopt, {}});
  for (const std::string key : {"d0", "d1", "d2"})
    EXPECT_EQ(Ask(engine, key + ".beta1_pow_acc_0", {{0, 1}}),
              key + ".beta1_pow_acc_0[0:1] from a.beta1_pow_acc_0[0:1]");
}

TEST(AoaStates, AStatementThatNamesAKeyReplacesFollowingForThatKey) {
  Tensors source, destination;
  AddWithStates(&source, "a", Half());
  AddWithStates(&source, "b", Half());
  AddWithStates(&destination, "d", Half());
  destination["d.moment1_0"].dtype = DType::kFloat16;
  const Engine engine = MustBuild({{"a -> d", "b.moment1_0 -> d.moment1_0, dtype='float16'"}, source, destination, {}});
  EXPECT_EQ(AskAll(engine, "d.moment1_0"), "d.moment1_0[0:2, 0:2] from b.moment1_0[0:2, 0:2] by float16");
  EXPECT_EQ(Ask(engine, "d.moment2_0", {{0, 2}, {0, 2}}), "d.moment2_0[0:2, 0:2] from a.moment2_0[0:2, 0:2]");
}

TEST(AoaStates, OfATemporaryCanBeNamed) {
  Tensors source;
  AddWithStates(&source, "a", Half());
  AddWithStates(&source, "b", Half());
  const Engine engine = MustBuild(
      {{"a, b -> t", "t -> d, dtype='float32'", "t.moment1_0 -> d.moment1_0, permute=[]"}, source, std::nullopt, {}});
  EXPECT_EQ(
      AskAll(engine, "d.moment1_0"),
      "d.moment1_0[0:2, 0:2] from a.moment1_0[0:2, 0:2] by [1, 0]; d.moment1_0[0:2, 2:4] from b.moment1_0[0:2, 0:2] by "
      "[1, 0]");
}

TEST(AoaStates, OfAnAddedKeyAreAddedToo) {
  Tensors destination;
  AddWithStates(&destination, "n", Half());
  const Engine engine = MustBuild({{"_ -> n"}, {}, destination, {}});
  for (const char* key : {"n.w_0", "n.moment1_0"}) EXPECT_EQ(Ask(engine, key, {{0, 2}, {0, 2}}), "");
  EXPECT_EQ(Ask(engine, "n.beta1_pow_acc_0", {{0, 1}}), "");
  EXPECT_TRUE(engine.dropped_states().empty());
}

TEST(AoaStates, ThatNothingSpeaksOfAreListed) {
  Tensors source = {{"a", Half()}}, destination;
  AddWithStates(&destination, "d", Half());
  destination["gone.moment1_0"] = Whole({2, 2});
  const Engine engine = MustBuild({{"a -> d"}, source, destination, {}});
  EXPECT_EQ(engine.dropped_states(), (std::vector<std::string>{"d.beta1_pow_acc_0", "d.beta2_pow_acc_0", "d.moment1_0",
                                                               "d.moment2_0", "d.w_0", "gone.moment1_0"}));
}

TEST(AoaStates, ThatAreThereOnlyInPartAreAnError) {
  const Engine engine =
      MustBuild({{"a, b -> d"}, {{"a", Half()}, {"b", Half()}, {"a.moment1_0", Whole({2, 2})}}, std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "d.moment1_0", {{0, 4}, {0, 2}}).substr(0, 9), "NOT_FOUND");
  EXPECT_EQ(Ask(engine, "d.moment1_0", {{0, 2}, {0, 2}}), "d.moment1_0[0:2, 0:2] from a.moment1_0[0:2, 0:2]");
}

TEST(AoaStates, OfAnotherShapeThanTheirModelKeyAreAnError) {
  const Engine engine = MustBuild({{"a -> d"}, {{"a", Half()}, {"a.moment1_0", Whole({4})}}, std::nullopt, {}});
  EXPECT_NE(Ask(engine, "d.moment1_0", {{0, 2}, {0, 2}}).find("'a.moment1_0' has the shape [4], its model key [2, 2]"),
            std::string::npos);
}

TEST(AoaStates, RemovedOnesAreGoneForThoseThatFollow) {
  Tensors source, destination;
  AddWithStates(&source, "a", Half());
  AddWithStates(&destination, "d", Half());
  const Engine engine = MustBuild({{"a -> d", "a.moment1_0 -> _", "a.beta1_pow_acc_0 -> _"}, source, destination, {}});
  EXPECT_NE(Ask(engine, "d.moment1_0", {{0, 2}, {0, 2}}).find("'a.moment1_0' was removed by statement 2"),
            std::string::npos);
  EXPECT_NE(Ask(engine, "d.beta1_pow_acc_0", {{0, 1}}).find("was removed by statement 3"), std::string::npos);
  EXPECT_EQ(engine.dropped_states(), (std::vector<std::string>{"d.beta1_pow_acc_0", "d.moment1_0"}));
}

TEST(AoaStates, GiveTheShapeWhereTheModelKeyIsNotDescribed) {
  Tensors source = {{"a.w_0", Whole({2, 4})}, {"a.moment1_0", Whole({2, 4})}, {"a.beta1_pow_acc_0", Scalar()}};
  const Engine engine = MustBuild({{"a -> d0, d1, axis=1"}, source, std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "d1.w_0", {{0, 2}, {0, 2}}), "d1.w_0[0:2, 0:2] from a.w_0[0:2, 2:4]");
}

TEST(AoaStates, PassThroughWithTheirModelKey) {
  Tensors source;
  AddWithStates(&source, "a", Half());
  const Engine engine = MustBuild({{}, source, source, {}});
  EXPECT_EQ(Ask(engine, "a.moment2_0", {{0, 1}, {0, 2}}), "a.moment2_0[0:1, 0:2] from a.moment2_0[0:1, 0:2]");
  EXPECT_EQ(Ask(engine, "a.beta2_pow_acc_0", {{0, 1}}), "a.beta2_pow_acc_0[0:1] from a.beta2_pow_acc_0[0:1]");
}

TEST(AoaStates, BackwardsFollowToo) {
  Tensors source, destination;
  AddWithStates(&source, "d", Whole({4, 2}));
  AddWithStates(&destination, "a", Whole({2, 2}));
  AddWithStates(&destination, "b", Whole({2, 2}));
  Program program{{"a, b -> d"}, source, destination, {}};
  program.options.reverse = true;
  const Engine engine = MustBuild(program);
  EXPECT_EQ(Ask(engine, "b.moment1_0", {{0, 2}, {0, 2}}), "b.moment1_0[0:2, 0:2] from d.moment1_0[2:4, 0:2]");
  EXPECT_EQ(Ask(engine, "b.beta1_pow_acc_0", {{0, 1}}), "b.beta1_pow_acc_0[0:1] from d.beta1_pow_acc_0[0:1]");
}

}  // namespace
}  // namespace kintsugi::aoa
