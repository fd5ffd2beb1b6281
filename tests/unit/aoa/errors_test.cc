// What is refused, with which words, and where the finger points.
#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

// a, b (2,4) float32; c (4,2); h (2,4) bfloat16; z 0-d; layers.0.w, layers.1.w; x.0, x.1.
Tensors Source() {
  Tensors source = {{"a", Whole({2, 4})},
                    {"b", Whole({2, 4})},
                    {"c", Whole({4, 2})},
                    {"z", Whole({})},
                    {"h", Whole({2, 4}, DType::kBFloat16)}};
  for (const char* key : {"layers.0.w", "layers.1.w", "x.0", "x.1", "f"}) source[key] = Sharded({2, 4}, 1, 2);
  return source;
}

struct Case {
  const char* name;
  std::vector<std::string> statements;
  int statement;
  int column;
  const char* message;
  bool reverse = false;
};

class AoaError : public testing::TestWithParam<Case> {};

TEST_P(AoaError, NamesStatementColumnAndReason) {
  const Case& given = GetParam();
  Tensors destination = {{"d", Whole({2, 8})}};
  Program program{given.statements, Source(), std::nullopt, {}};
  program.options.reverse = given.reverse;
  const Diagnostic failure = Failure(program);
  EXPECT_EQ(failure.statement, given.statement);
  EXPECT_EQ(failure.column, given.column);
  EXPECT_NE(failure.message.find(given.message), std::string::npos) << failure.message;
  EXPECT_EQ(failure.text, given.statements[static_cast<size_t>(given.statement) - 1]);
}

const Case kCases[] = {
    // tokens
    {"BadCharacter", {"a -> q", "a -> b@c"}, 2, 7, "unexpected character '@'"},
    {"BadByte", {"a -> b\x01"}, 1, 7, "unexpected character byte 0x01"},
    {"LoneMinus", {"a - b"}, 1, 3, "unexpected character '-'"},
    {"OldArrow", {"d <- a"}, 1, 3, "unexpected character '<'"},
    {"OpenString", {"a -> d, dtype='float32"}, 1, 15, "does not end"},
    {"HugeNumber", {"a -> d, d2, axis=99999999999999999999"}, 1, 18, "too large"},
    // grammar
    {"NoArrow", {"a, b"}, 1, 5, "expected ',' or '->', found the end of the statement"},
    {"NoName", {"-> b"}, 1, 1, "expected a name, found '->'"},
    {"NoRightName", {"a ->"}, 1, 5, "expected a name, found the end"},
    {"LeadingDigit", {"a -> 1b"}, 1, 6, "expected a name, found the number 1"},
    {"AttributeAlone", {"a -> axis=1"}, 1, 10, "expected ',' or the end of the statement, found '='"},
    {"TwoArrows", {"a -> b -> c"}, 1, 8, "expected ',' or the end of the statement, found '->'"},
    {"ValueMissing", {"a -> d, axis="}, 1, 14, "expected a number, a string or a list, found the end"},
    {"BareWordValue",
     {"a -> d, dtype=float32"},
     1,
     15,
     "expected a number, a string or a list, found the name 'float32'"},
    {"NameBehindAttributes", {"a -> d, axis=1, e"}, 1, 18, "expected '=' after 'e'"},
    {"NameBehindFlag", {"a -> d, fused_ffn, e"}, 1, 20, "stands behind the flag"},
    {"TwoFlags", {"a -> d, fused_ffn, fused_qkv"}, 1, 20, "a second flag"},
    {"OpenArray", {"a[0:2 -> d"}, 1, 7, "expected ']'"},
    {"OpenList", {"a -> d, permute=[1,0"}, 1, 21, "expected ',' or ']'"},
    // names
    {"NeverAssigned", {"nothing -> d"}, 1, 1, "'nothing' was never assigned"},
    {"ReadBeforeAssigned", {"t -> d", "a -> t"}, 1, 1, "'t' was never assigned"},
    {"ReadAfterRemoved", {"a -> _", "a -> d"}, 2, 1, "'a' was removed by statement 1"},
    {"ReadAdded", {"_ -> n", "n -> d"}, 2, 1, "'n' was added by statement 1 and has no source"},
    {"RemoveUnknown", {"nothing -> _"}, 1, 1, "'nothing' was never assigned"},
    {"NothingToNothing", {"_ -> _"}, 1, 1, "says nothing"},
    {"SeveralToNothing", {"a, b -> _"}, 1, 9, "'_' alone stands for nothing: each name is removed"},
    {"NothingToSeveral", {"_ -> d, e"}, 1, 1, "each name is removed ('a -> _') or added ('_ -> a')"},
    {"FamilyToNothing", {"y[0:2] -> _"}, 1, 11, "'_' alone stands for nothing"},
    {"FusedToNothing", {"f -> _, fused_ffn"}, 1, 6, "'_' alone stands for nothing"},
    {"NothingThatIsATensor", {"a -> _, d, axis=0", "_ -> e"}, 2, 1, "statement 1 made a tensor of that name"},
    {"PairToPair", {"a, b -> d, e"}, 1, 9, "2 names to 2 names"},
    // attributes
    {"UnknownAttribute", {"a -> d, transpose=[1,0]"}, 1, 9, "unknown attribute 'transpose'"},
    {"MergeWithPermute", {"a, b -> d, permute=[1,0]"}, 1, 12, "unknown attribute 'permute' of a merge or split"},
    {"SplitWithDtype", {"a -> d, e, axis=0, dtype='float32'"}, 1, 20, "unknown attribute 'dtype' of a merge or split"},
    {"AddWithDtype", {"_ -> d, dtype='float32'"}, 1, 9, "of a statement that adds or removes"},
    {"AxisTwice", {"a, b -> d, axis=0, axis=1"}, 1, 20, "'axis' is given twice"},
    {"AxisIsText", {"a, b -> d, axis='0'"}, 1, 17, "'axis' must be a number"},
    {"UnknownDtype", {"a -> d, dtype='float31'"}, 1, 15, "'float31' is not the name of a type"},
    {"DtypeIsNumber", {"a -> d, dtype=3"}, 1, 15, "must be the name of a type"},
    {"SrcWithoutDst", {"a -> d, src_dtype='float32'"}, 1, 9, "must be followed by 'dst_dtype'"},
    {"DstWithoutSrc", {"a -> d, dst_dtype='float32'"}, 1, 9, "must stand behind 'src_dtype'"},
    {"SrcIsWrong",
     {"a -> d, src_dtype='float16', dst_dtype='float32'"},
     1,
     9,
     "src_dtype is float16, but the tensor is float32"},
    {"CastToUInt16", {"a -> d, dtype='uint16'"}, 1, 9, "there is no cast from float32 to uint16"},
    {"CastToComplex", {"a -> d, dtype='complex64'"}, 1, 9, "there is no cast from float32 to complex64"},
    {"PermuteIsText", {"a -> d, permute='1,0'"}, 1, 17, "'permute' must be a list"},
    {"PermuteTooShort", {"a -> d, permute=[0]"}, 1, 9, "permute [0] does not name every axis of the shape [2, 4] once"},
    {"PermuteTwice", {"a -> d, permute=[1,1]"}, 1, 9, "permute [1, 1] does not name every axis"},
    // shapes
    {"MergeAxis", {"a, b -> d, axis=2"}, 1, 12, "axis 2 is not an axis of the shape [2, 4]"},
    {"MergeScalars", {"z, z -> d"}, 1, 9, "axis 0 is not an axis of the shape []"},
    {"MergeShapes",
     {"a, c -> d, axis=1"},
     1,
     12,
     "merge along axis 1: the shapes differ: 'a' has [2, 4], 'c' has [4, 2]"},
    {"MergeTypes", {"a, h -> d, axis=1"}, 1, 12, "the types differ: 'a' has float32, 'h' has bfloat16"},
    {"MergeDimensions", {"a, z -> d"}, 1, 9, "the shapes differ"},
    {"UnevenSplit", {"a -> d, e, g, axis=1"}, 1, 15, "axis 1 of the shape [2, 4] cannot be split into 3 equal parts"},
    {"SplitAxis", {"a -> d, e, axis=5"}, 1, 12, "axis 5 is not an axis of the shape [2, 4]"},
    {"ReshapeSize", {"a -> d, reshape='[2,3,4]'"}, 1, 9, "reshape of [2, 4] to [2, 3, 4] is not possible"},
    {"ReshapeOverflow", {"a -> d, reshape='[4294967296,4294967296]'"}, 1, 9, "is not possible"},
    {"SqueezeOfLength", {"a -> d, squeeze=[1]"}, 1, 9, "axis 1 of [2, 4] is not of length 1"},
    {"SqueezeTwice", {"a -> d, unsqueeze=[0]", "d -> e, squeeze=[0,0]"}, 2, 9, "be named once"},
    {"SqueezeOutside", {"a -> d, squeeze=[2]"}, 1, 9, "one of the 2 that there are"},
    {"UnsqueezeOutside", {"a -> d, unsqueeze=[3]"}, 1, 9, "one of the 3 that there will be"},
    // macros
    {"EmptyArray", {"a -> d[2:2], axis=0"}, 1, 6, "'d[2:2]' has no elements"},
    {"StarWithoutMatch", {"a -> q", "y.* -> d, axis=0"}, 2, 1, "the pattern 'y.*' matches no key of the source"},
    {"StarRightUndescribed", {"a -> y.*, axis=0"}, 1, 6, "the destination is not described"},
    {"TwoStars", {"x.*.* -> d"}, 1, 1, "exactly one '*'"},
    {"LayerWithoutMatch",
     {"lay.$LAYER_ID.w -> d.$LAYER_ID"},
     1,
     1,
     "the pattern 'lay.$LAYER_ID.w' matches no key of the source"},
    {"ExpertNotDecided",
     {"layers.$LAYER_ID.w -> d.$LAYER_ID.$EXPERT_ID"},
     1,
     23,
     "$EXPERT_ID of 'd.$LAYER_ID.$EXPERT_ID' is not in"},
    {"OtherIds", {"layers.$LAYER_ID.w, x.$LAYER_ID.v -> d.$LAYER_ID"}, 1, 21, "missing is 'x.0.v'"},
    {"TouchingPlaceholders", {"x.$LAYER_ID$EXPERT_ID -> d"}, 1, 1, "nothing but digits between them"},
    {"OffsetOfZero", {"layers.$LAYER_ID_OFFSET.w -> d.$LAYER_ID_OFFSET"}, 1, 1, "would become layer -1"},
    {"OffsetNotEverywhere", {"layers.$LAYER_ID_OFFSET.w -> d"}, 1, 30, "must contain it; 'd' does not"},
    {"TransposeRight", {"a -> d^T"}, 1, 6, "'d^T' is transposed on the right"},
    {"FfnForm", {"a, b, c -> d, fused_ffn"}, 1, 15, "fused_ffn takes F -> F2"},
    {"FfnAttribute", {"f -> d, fused_ffn, num_heads=2"}, 1, 20, "unknown attribute 'num_heads' of fused_ffn"},
    {"FfnUneven", {"z2 -> q", "f -> d, fused_ffn"}, 1, 1, "never assigned"},
    {"FfnUnknownName", {"nothing -> d, fused_ffn"}, 1, 1, "leads to no source key"},
    {"QkvForm", {"a, b -> d, fused_qkv, num_heads=2, num_key_value_groups=1"}, 1, 12, "fused_qkv takes"},
    {"QkvNoHeads", {"f -> d, fused_qkv_old, num_heads=2"}, 1, 9, "needs a positive num_key_value_heads"},
    {"QkvBothWords",
     {"f -> d, fused_qkv_old, num_heads=2, num_key_value_groups=1, num_key_value_heads=1"},
     1,
     9,
     "say the same; write the first"},
    {"QkvZeroHeads", {"f -> d, fused_qkv, num_heads=0, num_key_value_groups=1"}, 1, 9, "needs a positive num_heads"},
    {"QkvHeadsByGroups",
     {"f -> d, fused_qkv, num_heads=3, num_key_value_groups=2"},
     1,
     9,
     "num_heads=3 is not divisible by num_key_value_groups=2"},
    {"QkvGroupsByShards",
     {"f -> d, fused_qkv_old, num_heads=3, num_key_value_groups=3"},
     1,
     9,
     "must both be divisible by the 2 shards of the source"},
    // reverse
    {"ReversePlainCast", {"d -> a, dtype='float32'"}, 1, 9, "a plain 'dtype' cannot be reversed", true},
    {"ReverseFanOut",
     {"d -> a", "d -> b"},
     1,
     1,
     "'d' fans out: backwards it would come from 'a' here and from 'b' of statement 2",
     true},
    {"ReverseNeverAssigned", {"d -> nothing"}, 1, 6, "'nothing' was never assigned", true},
};

INSTANTIATE_TEST_SUITE_P(All, AoaError, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& tested) { return std::string(tested.param.name); });

// With a destination.

Diagnostic FailureWith(std::vector<std::string> statements, Tensors destination) {
  return Failure({std::move(statements), Source(), std::move(destination), {}});
}

TEST(AoaErrorOfDestination, KeyWithoutSourceSuggestsWhatToWrite) {
  const Diagnostic failure = FailureWith({"a -> q"}, {{"d", Whole({2, 4})}});
  EXPECT_EQ(failure.statement, 0);
  EXPECT_EQ(failure.message,
            "the destination's 'd' has no source; write '_ -> d' if it shall have none, or rename a key to it");
}

TEST(AoaErrorOfDestination, RemovedKeyDoesNotPassThrough) {
  const Diagnostic failure = FailureWith({"b -> q", "a -> _"}, {{"a", Whole({2, 4})}});
  EXPECT_EQ(failure.statement, 2);
  EXPECT_EQ(failure.column, 1);
  EXPECT_NE(failure.message.find("for it is removed"), std::string::npos);
}

TEST(AoaErrorOfDestination, ShapesMustAgree) {
  Diagnostic failure = FailureWith({"a, b -> d"}, {{"d", Whole({2, 8})}});
  EXPECT_EQ(failure.statement, 1);
  EXPECT_EQ(failure.column, 9);
  EXPECT_EQ(failure.message, "'d' is made with the shape [4, 4], but the destination's is [2, 8]");
  failure = FailureWith({}, {{"a", Whole({4, 2})}});
  EXPECT_EQ(failure.message, "'a' is made with the shape [2, 4], but the destination's is [4, 2]");
}

TEST(AoaErrorOfDestination, MisspeltFlagIsNotASplit) {
  const Diagnostic failure = FailureWith({"f -> d, fused_fnn"}, {{"d", Whole({1, 4})}});
  EXPECT_EQ(failure.column, 9);
  EXPECT_NE(failure.message.find("is it a misspelt flag?"), std::string::npos);
  // With an explicit axis an unused part is fine.
  MustBuild({{"f -> d, fused_fnn, axis=0"}, Source(), Tensors{{"d", Whole({1, 4})}}, {}});
}

TEST(AoaErrorOfDestination, FusedResultMustReachAKey) {
  const Diagnostic failure = FailureWith({"f -> t, fused_ffn"}, {{"a", Whole({2, 4})}});
  EXPECT_EQ(failure.column, 6);
  EXPECT_NE(failure.message.find("no destination key is made of 't'"), std::string::npos) << failure.message;
}

TEST(AoaErrorOfDestination, StatementAboutAStateMustHaveAnEffect) {
  Tensors source = Source();
  source["a.moment1_0"] = Whole({2, 4});
  const Diagnostic failure =
      Failure({{"a.moment1_0 -> a.moment1_0, dtype='bfloat16'", "a -> d"}, source, Tensors{{"d", Whole({2, 4})}}, {}});
  EXPECT_EQ(failure.statement, 1);
  EXPECT_NE(failure.message.find("names an optimizer state"), std::string::npos);
}

TEST(AoaErrorOfDestination, ShardsOfStatesMustAgreeForFusedMacros) {
  Tensors source = Source();
  source["f.moment1_0"] = Sharded({2, 4}, 1, 4);
  const Diagnostic failure = Failure({{"f -> d, fused_ffn"}, source, Tensors{{"d", Whole({2, 4})}}, {}});
  EXPECT_NE(failure.message.find("'f' has 2 shards along axis 1, 'f.moment1_0' has 4"), std::string::npos)
      << failure.message;
}

TEST(AoaErrorOfDestination, ShardsOfFusedTensorsMustBeEqual) {
  Tensors source = Source();
  source["f"].shards[1] = {{0, 3}, {2, 1}};
  const Diagnostic failure = Failure({{"f -> d, fused_ffn"}, source, Tensors{{"d", Whole({2, 4})}}, {}});
  EXPECT_NE(failure.message.find("are not 2 equal ones: one begins at 3 of 4"), std::string::npos) << failure.message;
}

TEST(AoaErrorOfDestination, ShardCountThroughAMergeAlongTheAxisIsUnknown) {
  const Diagnostic failure =
      Failure({{"f, f -> t, axis=1", "t -> d, fused_ffn"}, Source(), Tensors{{"d", Whole({2, 8})}}, {}});
  EXPECT_EQ(failure.statement, 2);
  EXPECT_NE(failure.message.find("it is cut or merged along its axis 1 (f, f -> t, axis=1)"), std::string::npos)
      << failure.message;
}

// The chain.

TEST(AoaErrorChain, ShowsEveryMacroOnTheWay) {
  const Diagnostic failure =
      FailureWith({"layers.$LAYER_ID.w^T -> g.$LAYER_ID, u.$LAYER_ID, fused_ffn, axis=3"}, {{"a", Whole({2, 4})}});
  EXPECT_EQ(failure.statement, 1);
  EXPECT_EQ(failure.text, "layers.$LAYER_ID.w^T -> g.$LAYER_ID, u.$LAYER_ID, fused_ffn, axis=3");
  ASSERT_EQ(failure.chain.size(), 2u) << failure.ToString();
  EXPECT_EQ(failure.chain[0], "$LAYER_ID, $EXPERT_ID (stage 1): layers.0.w^T -> g.0, u.0, fused_ffn, axis=3");
  EXPECT_EQ(failure.chain[1], "transpose (stage 5): layers.0.w^T#1 -> g.0, u.0, fused_ffn, axis=3");
}

TEST(AoaErrorChain, IsPartOfTheMessage) {
  const Diagnostic failure = FailureWith({"c -> d, fused_ffn"}, {{"d", Sharded({4, 2}, 1, 2)}});
  EXPECT_EQ(
      failure.ToString(),
      "statement 1, column 9: 'c': axis 1 of the shape [4, 2] cannot be split into 4 equal parts; in: c -> d, "
      "fused_ffn; "
      "by fused_ffn (stage 6): c -> fused_ffn#1.gate0, fused_ffn#1.gate1, fused_ffn#2.up0, fused_ffn#2.up1, axis=1");
}

TEST(AoaErrorChain, FusedPartsMustBeEqual) {
  Tensors source = Source();
  source["up"] = Whole({2, 6});
  const Diagnostic failure = Failure({{"a, up -> d, fused_ffn"}, source, Tensors{{"d", Whole({2, 10})}}, {}});
  EXPECT_NE(failure.message.find("the shapes differ"), std::string::npos) << failure.message;
}

TEST(AoaErrorOfLines, NumbersCountEveryLineOfEveryEntry) {
  const Diagnostic failure = Failure({{"a -> q\r\n\n", "", "b -> r\nnothing -> d"}, Source(), std::nullopt, {}});
  EXPECT_EQ(failure.statement, 5);
  EXPECT_EQ(failure.text, "nothing -> d");
}

// Questions.

TEST(AoaErrorOfQuestion, BoxAndKeyAreChecked) {
  const Engine engine = MustBuild({{"a, b -> d, axis=1"}, Source(), std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "e", {{0, 1}}), "NOT_FOUND: 'e': the program makes no such key");
  for (const IndexBox& box :
       {IndexBox{{0, 2}}, IndexBox{{0, 2}, {0, 9}}, IndexBox{{0, 2}, {3, 2}}, IndexBox{{-1, 2}, {0, 1}}})
    EXPECT_NE(Ask(engine, "d", box).find("does not lie in the shape [2, 8]"), std::string::npos) << DescribeBox(box);
}

TEST(AoaErrorOfQuestion, TypeWithoutCastIsRefused) {
  const Engine engine =
      MustBuild({{"a -> d", "a -> e, dtype='float16', dtype='float32'"},
                 Source(),
                 Tensors{{"d", Whole({2, 4}, DType::kFloat16)}, {"e", Whole({2, 4}, DType::kFloat16)}},
                 {}});
  for (const char* key : {"d", "e"}) {  // of e the last cast counts, not any
    EXPECT_NE(AskAll(engine, key).find("made as float32, but float16 is wanted"), std::string::npos)
        << AskAll(engine, key);
    EXPECT_TRUE(engine.FindShardSources({key, {{0, 2}, {0, 4}}, DType::kFloat32}).ok());
  }
  EXPECT_EQ(engine.FindShardSources({"e", {{0, 2}, {0, 4}}, std::nullopt}).error().statement, 2);
}

TEST(AoaErrorOfDescriptions, AreValidated) {
  const auto fails = [](Tensor tensor, const std::string& message) {
    const Diagnostic failure = Failure({{}, {{"t", std::move(tensor)}}, std::nullopt, {}});
    EXPECT_NE(failure.message.find(message), std::string::npos) << failure.message;
  };
  fails(Whole({2, -1}), "source 't': has the impossible shape [2, -1]");
  fails(Whole({int64_t{1} << 40, int64_t{1} << 40}), "impossible shape");
  fails(Tensor{{2}, static_cast<DType>(99), {}}, "unknown type");
  fails(Tensor{{2}, DType::kFloat32, {{{1}, {2}}}}, "shard [2] at [1] leaves the tensor's shape [2] on axis 0");
  fails(Tensor{{2}, DType::kFloat32, {{{1, 0}, {1, 1}}}}, "another number of axes");
  const Diagnostic failure = Failure({{}, {{"t.w_0", Whole({2})}, {"t.moment1_0", Whole({3})}}, std::nullopt, {}});
  EXPECT_NE(failure.message.find("do not agree: 't.w_0' has the shape [2], 't.moment1_0' has [3]"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::aoa
