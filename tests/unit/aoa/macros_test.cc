// Stacked layers and experts, optional statements, comments, and macros of one's own.
#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

Program Reversed(Program program) {
  program.options.reverse = true;
  return program;
}

void ExpectRefused(Program program, const std::string& words) {
  const Diagnostic diagnostic = Failure(std::move(program));
  EXPECT_NE(diagnostic.message.find(words), std::string::npos) << diagnostic.ToString();
}

// ---- stacked -----------------------------------------------------------------------------------------------------

TEST(AoaStacked, GivesEachLayerATensorWithoutItsAxisAndBack) {
  const std::vector<std::string> program = {"decoder.w -> layers.$LAYER_ID.w, stacked"};
  const Engine engine = MustBuild({program, {{"decoder.w", Whole({2, 3, 4})}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "layers.0.w"), "layers.0.w[0:3, 0:4] from decoder.w[0:1, 0:3, 0:4] by flatten:[3, 4]");
  EXPECT_EQ(Ask(engine, "layers.1.w", {{1, 2}, {0, 4}}),
            "layers.1.w[1:2, 0:4] from decoder.w[1:2, 1:2, 0:4] by flatten:[1, 4]");
  EXPECT_FALSE(engine.outputs().contains("layers.2.w"));
  const Engine back =
      MustBuild(Reversed({program, {{"layers.0.w", Whole({3, 4})}, {"layers.1.w", Whole({3, 4})}}, std::nullopt, {}}));
  EXPECT_EQ(AskAll(back, "decoder.w"),
            "decoder.w[0:1, 0:3, 0:4] from layers.0.w[0:3, 0:4] by reshape:[1, 3, 4]; "
            "decoder.w[1:2, 0:3, 0:4] from layers.1.w[0:3, 0:4] by reshape:[1, 3, 4]");
}

TEST(AoaStacked, IsWrittenTheOtherWayRoundToo) {
  const std::vector<std::string> program = {"layers.$LAYER_ID.w -> decoder.w, stacked"};
  const Tensors apart = {{"layers.0.w", Whole({3})}, {"layers.1.w", Whole({3})}};
  EXPECT_EQ(AskAll(MustBuild({program, apart, std::nullopt, {}}), "decoder.w"),
            "decoder.w[0:1, 0:3] from layers.0.w[0:3] by reshape:[1, 3]; "
            "decoder.w[1:2, 0:3] from layers.1.w[0:3] by reshape:[1, 3]");
  const Engine back = MustBuild(Reversed({program, {{"decoder.w", Whole({2, 3})}}, apart, {}}));
  EXPECT_EQ(AskAll(back, "layers.1.w"), "layers.1.w[0:3] from decoder.w[1:2, 0:3] by flatten:[3]");
}

TEST(AoaStacked, TakesAxesInTheOrderOfTheirPlaceholders) {
  const Tensors stacked = {{"w", Whole({2, 3, 5})}};
  const Engine layers_first = MustBuild({{"w -> l.$LAYER_ID.e.$EXPERT_ID, stacked"}, stacked, std::nullopt, {}});
  EXPECT_EQ(AskAll(layers_first, "l.1.e.2"), "l.1.e.2[0:5] from w[1:2, 2:3, 0:5] by flatten:[5]");
  const Engine experts_first = MustBuild({{"w -> e.$EXPERT_ID.l.$LAYER_ID, stacked"}, stacked, std::nullopt, {}});
  EXPECT_EQ(AskAll(experts_first, "e.1.l.2"), "e.1.l.2[0:5] from w[1:2, 2:3, 0:5] by flatten:[5]");
}

TEST(AoaStacked, DoesTheRestOfItsStatementToEachPart) {
  const std::vector<std::string> program = {
      "qkv -> q.$LAYER_ID, k.$LAYER_ID, v.$LAYER_ID, fused_qkv, axis=0, num_heads=4, num_key_value_heads=2, stacked",
      "m -> t.$LAYER_ID, permute=[1,0], stacked"};
  const Engine engine = MustBuild({program, {{"qkv", Whole({2, 8, 3})}, {"m", Whole({2, 5, 7})}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "q.1"),
            "q.1[0:1, 0:3] from qkv[1:2, 0:1, 0:3] by flatten:[1, 3]; q.1[1:2, 0:3] from qkv[1:2, 1:2, 0:3] by "
            "flatten:[1, 3]; "
            "q.1[2:3, 0:3] from qkv[1:2, 4:5, 0:3] by flatten:[1, 3]; q.1[3:4, 0:3] from qkv[1:2, 5:6, 0:3] by "
            "flatten:[1, 3]");
  EXPECT_EQ(AskAll(engine, "t.0"), "t.0[0:7, 0:5] from m[0:1, 0:5, 0:7] by flatten:[5, 7], [1, 0]");
}

TEST(AoaStacked, TakesTheStatesAlong) {
  const Engine engine = MustBuild(
      {{"w -> l.$LAYER_ID, stacked"}, {{"w", Whole({2, 3})}, {"w.moment1_0", Whole({2, 3})}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "l.1.moment1_0"), "l.1.moment1_0[0:3] from w.moment1_0[1:2, 0:3] by flatten:[3]");
}

TEST(AoaStacked, RefusesWhatItCannotMean) {
  const Tensors source = {{"w", Whole({2, 3})}, {"s", Whole({})}, {"l.0", Whole({3})}, {"l.2", Whole({3})}};
  ExpectRefused({{"w -> d, stacked"}, source, std::nullopt, {}}, "on the other names with $LAYER_ID");
  ExpectRefused({{"w, s -> d.$LAYER_ID, stacked"}, source, std::nullopt, {}}, "stacked takes one plain name");
  ExpectRefused({{"l.$LAYER_ID -> d.$LAYER_ID, stacked"}, source, std::nullopt, {}}, "stacked takes one plain name");
  ExpectRefused({{"w -> t", "t -> d.$LAYER_ID, stacked"}, source, std::nullopt, {}}, "is no key of the source");
  ExpectRefused({{"s -> d.$LAYER_ID, stacked"}, source, std::nullopt, {}}, "not an axis for each");
  ExpectRefused({{"w -> d.$LAYER_ID, e.$EXPERT_ID, stacked, axis=0"}, source, std::nullopt, {}}, "other placeholders");
  ExpectRefused({{"l.$LAYER_ID -> d, stacked"}, source, std::nullopt, {}}, "missing is 'l.1'");
  ExpectRefused({{"w -> d.$LAYER_ID, stacked, stacked"}, source, std::nullopt, {}}, "given twice");
  ExpectRefused({{"w -> d.$LAYER_ID, stacked, e"}, source, std::nullopt, {}}, "stands behind the flag 'stacked'");
  ExpectRefused({{"z -> d.$LAYER_ID, stacked"}, {{"z", Whole({0, 3})}}, std::nullopt, {}}, "an axis is 0 long");
}

TEST(AoaStacked, DoesNotGrowWithoutBound) {
  Options options;
  options.limits.names = 1000;
  const auto engine =
      Engine::Build({{"w -> d.$LAYER_ID, stacked"}, {{"w", Whole({int64_t{1} << 40, 1})}}, std::nullopt, options});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
}

// ---- optional ----------------------------------------------------------------------------------------------------

TEST(AoaOptional, LeavesOutWhatReadsNothing) {
  const std::vector<std::string> program = {"w -> d", "bias -> t, optional", "t -> d.bias, optional",
                                            "l.$LAYER_ID.b -> m.$LAYER_ID.b, optional"};
  const Engine without = MustBuild({program, {{"w", Whole({2})}}, std::nullopt, {}});
  EXPECT_EQ(without.outputs().size(), 1u);
  const Engine with =
      MustBuild({program, {{"w", Whole({2})}, {"bias", Whole({2})}, {"l.0.b", Whole({2})}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(with, "d.bias"), "d.bias[0:2] from bias[0:2]");
  EXPECT_EQ(AskAll(with, "m.0.b"), "m.0.b[0:2] from l.0.b[0:2]");
  const Engine back = MustBuild(Reversed({program, {{"d", Whole({2})}, {"d.bias", Whole({2})}}, std::nullopt, {}}));
  EXPECT_EQ(AskAll(back, "bias"), "bias[0:2] from d.bias[0:2]");
}

TEST(AoaOptional, StaysAnErrorWhereAPartIsThere) {
  ExpectRefused({{"q, k -> qk, optional"}, {{"q", Whole({2})}}, std::nullopt, {}}, "'k' was never assigned");
}

TEST(AoaOptional, StandsForItsStatementAlone) {
  ExpectRefused({{"a -> b, optional", "c -> d"}, {{"w", Whole({2})}}, std::nullopt, {}}, "'c' was never assigned");
}

// ---- comments ----------------------------------------------------------------------------------------------------

TEST(AoaComments, EndALine) {
  const Engine engine = MustBuild({{"# names\na -> d # as they are\n#\n"}, {{"a", Whole({2})}}, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2] from a[0:2]");
}

// ---- macros of one's own -----------------------------------------------------------------------------------------

// `W -> A, B, interleaved`: every other row of W each.
Result<std::vector<std::string>> Interleaved(const MacroCall& call) {
  const std::optional<Shape> shape = call.source_shape(call.left[0]);
  if (call.left.size() != 1 || call.right.size() != 2 || !shape || shape->size() != 2)
    return Status(StatusCode::kInvalidArgument, "interleaved takes one matrix apart");
  const std::string rows = std::to_string((*shape)[0] / 2), columns = std::to_string((*shape)[1]),
                    t = call.left[0] + ".t";
  const std::string flat = ", reshape=[" + rows + "," + columns + "]";
  return std::vector<std::string>{call.left[0] + " -> " + t + ", reshape=[" + rows + ",2," + columns + "]",
                                  t + " -> " + t + "0, " + t + "1, axis=1", t + "0 -> " + call.right[0] + flat,
                                  t + "1 -> " + call.right[1] + flat};
}

Program WithMacro(std::vector<std::string> statements, Tensors source, UserMacro macro = Interleaved) {
  Program program{std::move(statements), std::move(source), std::nullopt, {}};
  program.macros["interleaved"] = std::move(macro);
  return program;
}

TEST(AoaUserMacro, SaysWhatItsStatementsBecome) {
  const Engine engine =
      MustBuild(WithMacro({"l.$LAYER_ID.w -> l.$LAYER_ID.a, l.$LAYER_ID.b, interleaved"}, {{"l.0.w", Whole({4, 3})}}));
  EXPECT_EQ(AskAll(engine, "l.0.b"), "l.0.b[0:1, 0:3] from l.0.w[1:2, 0:3]; l.0.b[1:2, 0:3] from l.0.w[3:4, 0:3]");
}

TEST(AoaUserMacro, IsGivenNamesAndAttributes) {
  MacroCall seen;
  const auto macro = [&seen](const MacroCall& call) -> Result<std::vector<std::string>> {
    seen = call;
    return std::vector<std::string>{"a -> d"};
  };
  MustBuild(WithMacro({"a[0:2], b.* -> d, interleaved, n=3, s='x', l=[1, 2]"}, {{"a", Whole({2})}, {"b.1", Whole({2})}},
                      macro));
  EXPECT_EQ(seen.left, (std::vector<std::string>{"a_0", "a_1", "b.1"}));
  EXPECT_EQ(std::get<int64_t>(seen.attributes.at("n")), 3);
  EXPECT_EQ(std::get<std::string>(seen.attributes.at("s")), "x");
  EXPECT_EQ(std::get<std::vector<int64_t>>(seen.attributes.at("l")), (std::vector<int64_t>{1, 2}));
}

TEST(AoaUserMacro, IsRefusedByNameAndPlace) {
  const Tensors source = {{"w", Whole({4, 3})}};
  ExpectRefused(WithMacro({"w -> a, interleaved"}, source),
                "the macro 'interleaved' says: interleaved takes one matrix");
  const auto making = [](std::vector<std::string> texts) {
    return [texts = std::move(texts)](const MacroCall&) -> Result<std::vector<std::string>> { return texts; };
  };
  ExpectRefused(WithMacro({"w -> a, interleaved"}, source, making({"w ->"})), "made a statement that is none");
  ExpectRefused(WithMacro({"w -> a, interleaved"}, source, making({"w -> a.$LAYER_ID"})), "come before it");
  ExpectRefused(WithMacro({"w -> a, interleaved"}, source, making({"w -> a, optional"})), "come before it");
  ExpectRefused(WithMacro({"w -> a, interleaved"}, source, making({"nothing -> a"})), "'nothing' was never assigned");
  ExpectRefused(WithMacro({"w -> a, interleaved, fused_ffn"}, source), "a second flag 'fused_ffn'");
  const Diagnostic place = Failure(WithMacro({"", "w -> a, interleaved"}, source));
  EXPECT_EQ(place.statement, 2);
  EXPECT_EQ(place.column, 9);
  for (const std::string word : {"fused_ffn", "stacked", "a.b", "_", "3", ""}) {
    Program program{{"w -> a"}, source, std::nullopt, {}};
    program.macros[word] = Interleaved;
    ExpectRefused(std::move(program), "cannot be a macro of your own");
  }
}

}  // namespace
}  // namespace kintsugi::aoa
