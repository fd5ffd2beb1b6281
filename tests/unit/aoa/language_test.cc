// The language beyond the worked examples: attributes, macros, names, reshape, reverse.
#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

Tensors Keys(const std::vector<std::string>& keys, const Shape& shape = {2, 2}) {
  Tensors tensors;
  for (const std::string& key : keys) tensors[key] = Whole(shape);
  return tensors;
}

std::vector<std::string> OutputKeys(const Engine& engine) {
  std::vector<std::string> keys;
  for (const auto& [key, output] : engine.outputs()) keys.push_back(key);
  return keys;
}

using List = std::vector<std::string>;

TEST(AoaAttributes, AreAppliedInWrittenOrder) {
  for (const auto& [attributes, steps] : {std::pair("permute=[1,0], dtype='float16'", "[1, 0], float16"),
                                          std::pair("dtype='float16', permute='[1, 0]'", "float16, [1, 0]"),
                                          std::pair("dtype=\"float16\", permute='[]'", "float16, [1, 0]")}) {
    const Engine engine = MustBuild({{std::string("a -> d, ") + attributes}, Keys({"a"}, {2, 3}), std::nullopt, {}});
    EXPECT_EQ(Ask(engine, "d", {{1, 3}, {0, 1}}), std::string("d[1:3, 0:1] from a[0:1, 1:3] by ") + steps);
  }
}

TEST(AoaAttributes, PermuteTakesResultAxisKFromSourceAxisPk) {
  const Engine engine = MustBuild({{"a -> d, permute=[2,0,1]"}, Keys({"a"}, {2, 3, 4}), std::nullopt, {}});
  EXPECT_EQ(engine.outputs().at("d").shape, (Shape{4, 2, 3}));
  EXPECT_EQ(Ask(engine, "d", {{1, 2}, {0, 1}, {2, 3}}), "d[1:2, 0:1, 2:3] from a[0:1, 2:3, 1:2] by [2, 0, 1]");
}

TEST(AoaAttributes, AxisDefaultsToZeroForUsersAndOneInsideMacros) {
  Engine engine = MustBuild({{"a, b -> d"}, Keys({"a", "b"}, {2, 4}), std::nullopt, {}});
  EXPECT_EQ(engine.outputs().at("d").shape, (Shape{4, 4}));
  engine = MustBuild({{"a -> g, u, fused_ffn"}, Keys({"a"}, {2, 4}), std::nullopt, {}});
  EXPECT_EQ(engine.outputs().at("g").shape, (Shape{2, 2}));
}

TEST(AoaAttributes, EveryTypeThatCanBeCastToIsAccepted) {
  for (const char* type : {"float64", "float8_e4m3fn", "int64", "bool", "uint8"}) {
    const Engine engine = MustBuild({{std::string("a -> d, dtype='") + type + "'"}, Keys({"a"}), std::nullopt, {}});
    EXPECT_EQ(DTypeName(engine.outputs().at("d").dtype), type);
  }
}

TEST(AoaShapes, ScalarsAndEmptyTensorsAreValidEverywhere) {
  const Engine engine =
      MustBuild({{"z -> y, permute=[], dtype='float16'", "y^T -> x", "e -> e1, e2, axis=1", "e1, e2, f -> g, axis=0"},
                 {{"z", Whole({})}, {"e", Whole({0, 4})}, {"f", Whole({3, 2})}},
                 std::nullopt,
                 {}});
  EXPECT_EQ(AskAll(engine, "x"), "x[] from z[] by [], float16, []");
  EXPECT_EQ(AskAll(engine, "g"), "g[0:3, 0:2] from f[0:3, 0:2]");
  EXPECT_EQ(Ask(engine, "g", {{1, 1}, {0, 2}}), "");  // an empty box: a correct empty answer
}

TEST(AoaShapes, MayHaveManyAxes) {
  const Engine engine =
      MustBuild({{"a -> t, permute=[]", "t -> d0, d1, axis=6"}, Keys({"a"}, {2, 1, 3, 1, 2, 1, 2}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d1"),
            "d1[0:2, 0:1, 0:2, 0:1, 0:3, 0:1, 0:1] from a[1:2, 0:1, 0:3, 0:1, 0:2, 0:1, 0:2] by [6, 5, 4, 3, 2, 1, 0]");
}

// ---- names -------------------------------------------------------------------------------------------------------

TEST(AoaNames, MayBeAssignedAgainAndShadowInputs) {
  const Engine engine =
      MustBuild({{"s -> s, dtype='float16'", "s -> d", "b -> s", "s -> e"}, Keys({"s", "b"}), std::nullopt, {}});
  EXPECT_EQ(OutputKeys(engine), (List{"d", "e"}));
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2, 0:2] from s[0:2, 0:2] by float16");
  EXPECT_EQ(AskAll(engine, "e"), "e[0:2, 0:2] from b[0:2, 0:2]");
}

TEST(AoaNames, WithoutDestinationOutputsAreWhatNothingReads) {
  const Engine engine = MustBuild({{"a -> t", "t -> d", "b -> _", "_ -> n"}, Keys({"a", "b", "c"}), std::nullopt, {}});
  EXPECT_EQ(OutputKeys(engine), (List{"c", "d", "n"}));
}

TEST(AoaNames, WithDestinationKeysPassThrough) {
  const Engine engine = MustBuild({{"a -> d"}, Keys({"a", "b", "c"}), Keys({"a", "c", "d"}), {}});
  EXPECT_EQ(OutputKeys(engine), (List{"a", "c", "d"}));
  EXPECT_EQ(AskAll(engine, "c"), "c[0:2, 0:2] from c[0:2, 0:2]");
}

TEST(AoaNames, WhatWasReadBeforeARemovalKeepsItsSources) {
  const Engine engine = MustBuild({{"a -> d", "a -> _"}, Keys({"a"}), Keys({"d"}), {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2, 0:2] from a[0:2, 0:2]");
}

TEST(AoaNames, UnderscoreIsSpecialOnlyAlone) {
  const Engine engine = MustBuild({{"a -> _, d, axis=0", "_, d -> e"}, Keys({"a"}), std::nullopt, {}});
  EXPECT_EQ(OutputKeys(engine), (List{"e"}));
}

// ---- macros ------------------------------------------------------------------------------------------------------

TEST(AoaIds, ExpertsAreTheOuterLoopAndOnlyWhatOccursIsMade) {
  const Engine engine = MustBuild({{"l.$LAYER_ID.e.$EXPERT_ID -> m.$LAYER_ID.$EXPERT_ID"},
                                   Keys({"l.2.e.0", "l.10.e.0", "l.2.e.1", "l.10.e.1.moment1_0", "l.10.e.x"}),
                                   std::nullopt,
                                   {}});
  EXPECT_EQ(engine.expanded(),
            (List{"l.2.e.0 -> m.2.0", "l.10.e.0 -> m.10.0", "l.2.e.1 -> m.2.1", "l.10.e.1 -> m.10.1"}));
}

TEST(AoaIds, NamesWithoutPlaceholderStayAndRepeatedOnesMustBeEqual) {
  const Engine engine = MustBuild(
      {{"a.$LAYER_ID.b.$LAYER_ID, all -> d.$LAYER_ID"}, Keys({"a.1.b.1", "a.1.b.2", "all"}), std::nullopt, {}});
  EXPECT_EQ(engine.expanded(), (List{"a.1.b.1, all -> d.1"}));
}

TEST(AoaIds, OfNamesThatEarlierStatementsAssigned) {
  const Engine engine = MustBuild(
      {{"a.$LAYER_ID -> t.$LAYER_ID", "t.$LAYER_ID^T -> d.$LAYER_ID"}, Keys({"a.0", "a.1"}), Keys({"d.0", "d.1"}), {}});
  EXPECT_EQ(AskAll(engine, "d.1"), "d.1[0:2, 0:2] from a.1[0:2, 0:2] by [1, 0]");
}

TEST(AoaIds, AddedKeysAreFoundInTheDestination) {
  const Engine engine = MustBuild({{"_ -> n.$LAYER_ID"}, {}, Keys({"n.3", "n.4"}), {}});
  EXPECT_EQ(engine.expanded(), (List{"_ -> n.3", "_ -> n.4"}));
}

TEST(AoaIds, OffsetTakesOneOffOnTheRight) {
  const Engine engine =
      MustBuild({{"m.$LAYER_ID_OFFSET.w -> n.$LAYER_ID_OFFSET.w"}, Keys({"m.1.w", "m.2.w"}), std::nullopt, {}});
  EXPECT_EQ(engine.expanded(), (List{"m.1.w -> n.0.w", "m.2.w -> n.1.w"}));
}

TEST(AoaIds, OptionalPatternsMayMatchNothing) {
  Program program{{"no.$LAYER_ID -> d.$LAYER_ID", "no.* -> d, axis=0", "a -> d"}, Keys({"a"}), std::nullopt, {}};
  program.options.optional = true;
  EXPECT_EQ(MustBuild(program).expanded(), (List{"a -> d"}));
}

TEST(AoaLists, StarsAreSortedByNumberAndMatchWholeKeys) {
  const Engine engine =
      MustBuild({{"w.* -> d, axis=0"}, Keys({"w.10", "w.9", "w.1", "w.1.moment1_0", "xw.2"}), std::nullopt, {}});
  EXPECT_EQ(engine.expanded(), (List{"w.1, w.9, w.10 -> d, axis=0"}));
}

TEST(AoaLists, StarOnTheRightIsOfDestinationKeys) {
  const Engine engine = MustBuild({{"a -> w.*, axis=0"}, Keys({"a"}), Keys({"w.0", "w.1"}, {1, 2}), {}});
  EXPECT_EQ(engine.expanded(), (List{"a -> w.0, w.1, axis=0"}));
}

TEST(AoaLists, ArraysAreNumberedWithUnderscores) {
  const Engine engine = MustBuild({{"a -> t[3:5], axis=1", "t[3:5] -> d, axis=0"}, Keys({"a"}), std::nullopt, {}});
  EXPECT_EQ(engine.expanded(), (List{"a -> t_3, t_4, axis=1", "t_3, t_4 -> d, axis=0"}));
}

TEST(AoaFused, TemporariesAreUniquePerStatement) {
  const Engine engine =
      MustBuild({{"a -> g, u, fused_ffn", "b -> g2, u2, fused_ffn"}, Keys({"a", "b"}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "u"), "u[0:2, 0:1] from a[0:2, 1:2]");
  EXPECT_EQ(AskAll(engine, "u2"), "u2[0:2, 0:1] from b[0:2, 1:2]");
}

TEST(AoaFused, QkvByGroups) {
  const Engine engine = MustBuild(
      {{"f -> q, k, v, fused_qkv, num_heads=4, num_key_value_groups=2, axis=0"}, Keys({"f"}, {8}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "q"), "q[0:1] from f[0:1]; q[1:2] from f[1:2]; q[2:3] from f[4:5]; q[3:4] from f[5:6]");
  EXPECT_EQ(AskAll(engine, "k"), "k[0:1] from f[2:3]; k[1:2] from f[6:7]");
  EXPECT_EQ(AskAll(engine, "v"), "v[0:1] from f[3:4]; v[1:2] from f[7:8]");
}

TEST(AoaFused, QkvByGroupsOfOneNameIsARename) {
  const Engine engine = MustBuild({{"f -> d, fused_qkv, num_heads=4, num_key_value_groups=2"},
                                   {{"f", Sharded({2, 8}, 1, 2)}},
                                   Tensors{{"d", Sharded({2, 8}, 1, 2)}},
                                   {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2, 0:8] from f[0:2, 0:8]");
}

TEST(AoaFused, QkvByRanks) {
  // Per rank its query heads, its key heads, its value heads: 2 ranks to 1.
  const Engine engine = MustBuild({{"f -> d, fused_qkv_old, num_heads=4, num_key_value_groups=2, axis=0"},
                                   {{"f", Sharded({8}, 0, 2)}},
                                   Tensors{{"d", Whole({8})}},
                                   {}});
  EXPECT_EQ(
      AskAll(engine, "d"),
      "d[0:1] from f[0:1]; d[1:2] from f[1:2]; d[2:3] from f[4:5]; d[3:4] from f[5:6]; d[4:5] from f[2:3]; d[5:6] from "
      "f[6:7]; d[6:7] from f[3:4]; d[7:8] from f[7:8]");
}

TEST(AoaFused, ShardsAreCountedAlongTheAxisOfTheMacroAlone) {
  Tensor grid = Sharded({2, 8}, 1, 2);  // and each cut in two along axis 0
  for (Shard& shard : std::vector<Shard>(grid.shards)) grid.shards.push_back({{1, shard.offset[1]}, {1, 4}});
  const Engine engine = MustBuild({{"f -> g, u, fused_ffn"}, {{"f", grid}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "g"), "g[0:2, 0:2] from f[0:2, 0:2]; g[0:2, 2:4] from f[0:2, 4:6]");
}

TEST(AoaFused, ShardsAreCountedOnStatesToo) {
  const Engine engine = MustBuild({{"f -> g, u, fused_ffn"}, {{"f.w_0", Sharded({2, 8}, 1, 2)}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "g"), "g[0:2, 0:2] from f[0:2, 0:2]; g[0:2, 2:4] from f[0:2, 4:6]");
}

TEST(AoaFused, AsksTheCutsWhereNoDestinationIsDescribed) {
  const Tensors source = {{"K", Sharded({2, 8}, 1, 2)}};
  for (const int64_t ranks : {1, 2, 4}) {
    Tensors cuts = {{"D", Sharded({8, 2}, 0, ranks)}};
    const Engine described = MustBuild({{"K -> t, fused_ffn", "t^T -> D"}, source, cuts, {}});
    const Engine engine = MustBuild({{"K -> t, fused_ffn", "t^T -> D"}, source, std::nullopt, {}, cuts});
    EXPECT_EQ(AskAll(engine, "D"), AskAll(described, "D"));
    ASSERT_EQ(engine.fused().size(), 1u);
    EXPECT_EQ(engine.fused()[0].from, 2);
    EXPECT_EQ(engine.fused()[0].to, ranks);
  }
  // Without them it is one rank's.
  EXPECT_EQ(MustBuild({{"K -> t, fused_ffn", "t^T -> D"}, source, std::nullopt, {}}).fused()[0].to, 1);
}

TEST(AoaFused, LayoutOfATemporaryBetweenTwoFusedStatements) {
  // t is laid out as the destination wants it, so the second statement has nothing to reorder.
  const Tensors source = {{"f", Sharded({8}, 0, 2)}}, destination = {{"d", Sharded({8}, 0, 4)}};
  const Engine twice = MustBuild({{"f -> t, fused_ffn, axis=0", "t -> d, fused_ffn, axis=0"}, source, destination, {}});
  const Engine once = MustBuild({{"f -> d, fused_ffn, axis=0"}, source, destination, {}});
  EXPECT_EQ(AskAll(twice, "d"), AskAll(once, "d"));
}

// ---- reshape -----------------------------------------------------------------------------------------------------

TEST(AoaReshape, CutsWhereverElementsAllowIt) {
  Engine engine = MustBuild({{"a -> d, reshape='[3,2,4]'"}, Keys({"a"}, {6, 4}), std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "d", {{1, 3}, {0, 2}, {0, 4}}), "d[1:3, 0:2, 0:4] from a[2:6, 0:4] by reshape:[2, 2, 4]");
  EXPECT_EQ(Ask(engine, "d", {{1, 3}, {0, 1}, {0, 4}}),
            "d[1:2, 0:1, 0:4] from a[2:3, 0:4] by reshape:[1, 1, 4]; "
            "d[2:3, 0:1, 0:4] from a[4:5, 0:4] by reshape:[1, 1, 4]");
  engine = MustBuild({{"a -> d, reshape=[6,4]"}, Keys({"a"}, {3, 2, 4}), std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "d", {{2, 6}, {0, 4}}), "d[2:6, 0:4] from a[1:3, 0:2, 0:4] by flatten:[4, 4]");
  EXPECT_EQ(Ask(engine, "d", {{1, 6}, {0, 3}}),
            "d[1:2, 0:3] from a[0:1, 1:2, 0:3] by flatten:[1, 3]; "
            "d[2:6, 0:3] from a[1:3, 0:2, 0:3] by flatten:[4, 3]");
}

TEST(AoaReshape, OfPiecesThatAreNotWholeBlocksCutsThem) {
  const Engine engine = MustBuild({{"a, b, c -> t, axis=0", "t -> d, reshape='[3,2,4]'"},
                                   {{"a", Whole({2, 4})}, {"b", Whole({1, 4})}, {"c", Whole({3, 4})}},
                                   std::nullopt,
                                   {}});
  EXPECT_EQ(AskAll(engine, "d"),
            "d[0:1, 0:2, 0:4] from a[0:2, 0:4] by reshape:[1, 2, 4]; "
            "d[1:2, 0:1, 0:4] from b[0:1, 0:4] by reshape:[1, 1, 4]; "
            "d[1:2, 1:2, 0:4] from c[0:1, 0:4] by reshape:[1, 1, 4]; "
            "d[2:3, 0:2, 0:4] from c[1:3, 0:4] by reshape:[1, 2, 4]");
}

TEST(AoaReshape, IsOneReshapeAndOnePermuteHoweverOftenItIsWritten) {
  const Engine engine = MustBuild(
      {{"a -> t, reshape='[2,2,3,4]', permute=[0,2,1,3], reshape='[12,4]'", "t -> d, reshape='[48]', reshape='[12,4]'"},
       Keys({"a"}, {12, 4}),
       std::nullopt,
       {}});
  EXPECT_EQ(AskAll(engine, "d"),
            "d[0:12, 0:4] from a[0:12, 0:4] by reshape:[2, 2, 3, 4], [0, 2, 1, 3], flatten:[12, 4]");
}

TEST(AoaReshape, DropsAndAddsAxesOfLengthOne) {
  const Engine engine =
      MustBuild({{"a -> t, squeeze=[0,2]", "t -> d, unsqueeze=[0,2]"}, Keys({"a"}, {1, 3, 1, 4}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:1, 0:3, 0:1, 0:4] from a[0:1, 0:3, 0:1, 0:4]");
}

// Cut through a digit there is no one reshape; smaller boxes have one.
TEST(AoaReshape, ThatCutsADigitFallsIntoPieces) {
  const Engine engine = MustBuild({{"a -> d, reshape='[3,2]'"}, Keys({"a"}, {2, 3}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d"),
            "d[0:1, 0:2] from a[0:1, 0:2]; d[1:2, 0:1] from a[0:1, 2:3]; d[1:2, 1:2] from a[1:2, 0:1]; "
            "d[2:3, 0:2] from a[1:2, 1:3]");
}

TEST(AoaReshape, OfTheSameShapeDoesNothing) {
  const Engine engine = MustBuild({{"a -> d, reshape='[6,4]'"}, Keys({"a"}, {6, 4}), std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:6, 0:4] from a[0:6, 0:4]");
}

TEST(AoaReshape, BackwardsAStatementKnowsTheShapesBetweenItsAttributes) {
  Program program{{"a -> t, reshape='[3,2,4]', permute=[1,0,2], reshape='[6,4]'", "t -> d, unsqueeze=[0]"},
                  Keys({"d"}, {1, 6, 4}),
                  Keys({"a"}, {24}),
                  {}};
  program.options.reverse = true;
  EXPECT_EQ(AskAll(MustBuild(program), "a"),
            "a[0:24] from d[0:1, 0:6, 0:4] by reshape:[2, 3, 4], [1, 0, 2], flatten:[24]");
}

TEST(AoaReshape, BackwardsTheDestinationSaysWhichShape) {
  Program program{{"a -> d, reshape='[6,4]'"}, Keys({"d"}, {6, 4}), Keys({"a"}, {3, 2, 4}), {}};
  program.options.reverse = true;
  EXPECT_EQ(AskAll(MustBuild(program), "a"), "a[0:3, 0:2, 0:4] from d[0:6, 0:4] by reshape:[3, 2, 4]");
  program = {{"a -> d, reshape='[3,2,4]'"}, Keys({"d"}, {3, 2, 4}), std::nullopt, {}};
  program.options.reverse = true;
  const auto unknown = Engine::Build(program);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("the shape that [3, 2, 4] had before"), std::string::npos);
}

// ---- reverse -----------------------------------------------------------------------------------------------------

Engine Backwards(std::vector<std::string> statements, Tensors source, std::optional<Tensors> destination) {
  Program program{std::move(statements), std::move(source), std::move(destination), {}};
  program.options.reverse = true;
  return MustBuild(std::move(program));
}

TEST(AoaReverse, UndoesMergeCastPermuteAndSplit) {
  const Engine engine =
      Backwards({"s0, s1 -> s, axis=1", "s -> t, src_dtype='float32', dst_dtype='float16'", "t -> d0, permute=[1,0]"},
                {{"d0", Whole({4, 2}, DType::kFloat16)}}, Keys({"s0", "s1"}));
  EXPECT_EQ(AskAll(engine, "s1"), "s1[0:2, 0:2] from d0[2:4, 0:2] by [1, 0], float32");
}

TEST(AoaReverse, AddAndRemoveSwap) {
  const Engine engine = Backwards({"a -> _", "_ -> n", "b -> d"}, Keys({"d", "n"}), Keys({"a", "b"}));
  EXPECT_TRUE(engine.outputs().at("a").is_added);
  EXPECT_EQ(AskAll(engine, "b"), "b[0:2, 0:2] from d[0:2, 0:2]");
}

TEST(AoaReverse, FanOutTakesTheOneThatIsNotRemoved) {
  for (const auto& statements : {List{"_ -> c", "a -> b", "a -> c"}, List{"_ -> c", "a -> c", "a -> b"}})
    EXPECT_EQ(AskAll(Backwards(statements, Keys({"b", "c"}), Keys({"a"})), "a"), "a[0:2, 0:2] from b[0:2, 0:2]");
}

TEST(AoaReverse, IdsAreDecidedByTheRightName) {
  const Engine engine = Backwards({"a.$LAYER_ID -> d.$LAYER_ID", "m.$LAYER_ID_OFFSET -> n.$LAYER_ID_OFFSET"},
                                  Keys({"d.0", "d.7", "n.0"}), std::nullopt);
  EXPECT_EQ(OutputKeys(engine), (List{"a.0", "a.7", "m.1"}));
}

TEST(AoaReverse, ShardCountsSwap) {
  // As written: 2 ranks to 1. Backwards the single one is the source.
  const Engine engine =
      Backwards({"f -> d, fused_ffn, axis=0"}, {{"d", Whole({8})}}, Tensors{{"f", Sharded({8}, 0, 2)}});
  EXPECT_EQ(AskAll(engine, "f"), "f[0:2] from d[0:2]; f[2:4] from d[4:6]; f[4:6] from d[2:4]; f[6:8] from d[6:8]");
}

TEST(AoaDeterminism, TheSameProgramGivesTheSameAnswers) {
  const Program program{
      {"l.$LAYER_ID^T -> t.$LAYER_ID", "t.*, b -> d, axis=0", "_ -> n"}, Keys({"l.0", "l.1", "b"}), std::nullopt, {}};
  const Engine first = MustBuild(program), second = MustBuild(program);
  EXPECT_EQ(first.expanded(), second.expanded());
  EXPECT_EQ(AskAll(first, "d"), AskAll(second, "d"));
}

}  // namespace
}  // namespace kintsugi::aoa
