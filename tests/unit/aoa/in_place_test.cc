// Weights and their states that keep their names while they are changed: each is changed once, whatever follows.
#include <algorithm>

#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

const char* const kStates[] = {"", ".moment1_0", ".moment2_0", ".w_0"};

void AddSharded(Tensors* tensors, const std::string& key, const Shape& shape, size_t axis, int64_t shards) {
  for (const char* suffix : kStates) (*tensors)[key + suffix] = Sharded(shape, axis, shards);
}

// `statement` for the weight and for each of its states, as configurations write them.
std::vector<std::string> ForEach(const std::string& name, const std::string& attributes) {
  std::vector<std::string> statements;
  for (const std::string suffix : kStates)
    statements.push_back(name + suffix + " -> " + name + suffix + ", " + attributes);
  return statements;
}

// What the box of `key` is made of, without the keys themselves: the same for a weight and its states.
std::string Boxes(const Engine& engine, const std::string& key, const Shape& shape) {
  const auto pieces = engine.FindShardSources({key, WholeBox(shape), std::nullopt});
  if (!pieces.ok()) return pieces.status().ToString();
  std::string text;
  for (const ShardSource& piece : *pieces) {
    EXPECT_EQ(piece.source_key, key);
    text += DescribeBox(piece.target_box) + " from " + DescribeBox(piece.source_box);
    for (const PieceStep& step : piece.steps) text += " " + step.ToString();
    text += "; ";
  }
  return text;
}

void ExpectStatesAsTheWeight(const Engine& engine, const std::string& key, const Shape& shape) {
  const std::string weight = Boxes(engine, key, shape);
  EXPECT_FALSE(weight.empty());
  for (const char* suffix : kStates) EXPECT_EQ(Boxes(engine, key + suffix, shape), weight) << suffix;
}

TEST(AoaInPlace, AStateWithAStatementOfItsOwnIsChangedOnce) {
  Tensors tensors;
  AddSharded(&tensors, "W", {2, 2}, 0, 1);
  for (const bool weight_first : {true, false}) {
    std::vector<std::string> statements = ForEach("W", "permute=[1,0]");
    if (!weight_first) std::reverse(statements.begin(), statements.end());
    const Engine engine = MustBuild({statements, tensors, tensors, {}});
    EXPECT_EQ(Boxes(engine, "W.moment1_0", {2, 2}), "[0:2, 0:2] from [0:2, 0:2] [1, 0]; ");
    ExpectStatesAsTheWeight(engine, "W", {2, 2});
  }
}

TEST(AoaInPlace, AStateWithoutAStatementStillFollows) {
  Tensors tensors;
  AddSharded(&tensors, "W", {2, 2}, 0, 1);
  const Engine engine =
      MustBuild({{"W -> W, permute=[1,0]", "W.moment1_0 -> W.moment1_0, permute=[1,0]"}, tensors, tensors, {}});
  ExpectStatesAsTheWeight(engine, "W", {2, 2});
}

TEST(AoaInPlace, ShiftedLayersShiftTheirStatesOnce) {
  Tensors source, destination;
  for (const int layer : {1, 2, 3}) AddSharded(&source, "m." + std::to_string(layer) + ".w", {2}, 0, 1);
  for (const int layer : {0, 1, 2}) AddSharded(&destination, "m." + std::to_string(layer) + ".w", {2}, 0, 1);
  const Engine engine = MustBuild({{"m.$LAYER_ID_OFFSET.w -> m.$LAYER_ID_OFFSET.w",
                                    "m.$LAYER_ID_OFFSET.w.moment1_0 -> m.$LAYER_ID_OFFSET.w.moment1_0"},
                                   source,
                                   destination,
                                   {}});
  for (const char* suffix : {"", ".moment1_0", ".moment2_0"})
    EXPECT_EQ(Ask(engine, "m.0.w" + std::string(suffix), {{0, 2}}),
              "m.0.w" + std::string(suffix) + "[0:2] from m.1.w" + suffix + "[0:2]");
}

TEST(AoaInPlace, ExchangedExpertsExchangeTheirStatesOnce) {
  Tensors tensors;
  for (const char* key : {"e.0", "e.1"}) AddSharded(&tensors, key, {2}, 0, 1);
  const Engine engine = MustBuild({{"e.0 -> t", "e.1 -> e.0", "t -> e.1", "e.0.moment1_0 -> s",
                                    "e.1.moment1_0 -> e.0.moment1_0", "s -> e.1.moment1_0"},
                                   tensors,
                                   tensors,
                                   {}});
  for (const std::string suffix : kStates) {
    EXPECT_EQ(Ask(engine, "e.0" + suffix, {{0, 2}}), "e.0" + suffix + "[0:2] from e.1" + suffix + "[0:2]");
    EXPECT_EQ(Ask(engine, "e.1" + suffix, {{0, 2}}), "e.1" + suffix + "[0:2] from e.0" + suffix + "[0:2]");
  }
}

// As published for llama: the statements of a trainer's own documentation, letter by letter.
TEST(AoaInPlace, TheLlamaConfigurationReordersEveryStateAsItsWeight) {
  const std::string key = "llama.layers.0.mlp.gate_up_fused_proj.weight";
  Tensors source, destination;
  AddSharded(&source, key, {2, 8}, 1, 2);
  AddSharded(&destination, key, {2, 8}, 1, 4);
  const Engine engine = MustBuild(
      {{"llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight -> llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight, "
        "fused_ffn",
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.moment1_0 -> "
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.moment1_0, fused_ffn",
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.moment2_0 -> "
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.moment2_0, fused_ffn",
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.w_0 -> "
        "llama.layers.$LAYER_ID.mlp.gate_up_fused_proj.weight.w_0, fused_ffn"},
       source,
       destination,
       {}});
  // G0 G1 U0 U1 | G2 G3 U2 U3 becomes G0 U0 | G1 U1 | G2 U2 | G3 U3.
  EXPECT_EQ(Boxes(engine, key, {2, 8}),
            "[0:2, 0:1] from [0:2, 0:1]; [0:2, 1:2] from [0:2, 2:3]; [0:2, 2:3] from [0:2, 1:2]; "
            "[0:2, 3:4] from [0:2, 3:4]; [0:2, 4:5] from [0:2, 4:5]; [0:2, 5:6] from [0:2, 6:7]; "
            "[0:2, 6:7] from [0:2, 5:6]; [0:2, 7:8] from [0:2, 7:8]; ");
  ExpectStatesAsTheWeight(engine, key, {2, 8});
}

// As published for ernie. `qkv` is the word that stands for the fused attention weight.
std::vector<std::string> Ernie(const std::string& qkv) {
  std::vector<std::string> statements;
  for (const std::string block : {"ernie.layers.", "ernie.mtp_block."})
    for (const std::string& statement : ForEach(block + "$LAYER_ID.self_attn.qkv_proj.weight", qkv))
      statements.push_back(statement);
  for (const std::string block : {"ernie.layers.", "ernie.mtp_block."})
    for (const std::string& statement : ForEach(block + "$LAYER_ID.mlp.up_gate_proj.weight", "fused_ffn"))
      statements.push_back(statement);
  for (const std::string& statement : ForEach("ernie.layers.1.mlp.shared_experts.up_gate_proj.weight", "fused_ffn"))
    statements.push_back(statement);
  return statements;
}

Tensors ErnieTensors(int64_t shards) {
  Tensors tensors;
  for (const std::string layer : {"ernie.layers.0.", "ernie.layers.1.", "ernie.mtp_block.0."}) {
    AddSharded(&tensors, layer + "self_attn.qkv_proj.weight", {2, 28}, 1, shards);
    AddSharded(&tensors, layer + "mlp.up_gate_proj.weight", {2, 16}, 1, shards);
  }
  AddSharded(&tensors, "ernie.layers.1.mlp.shared_experts.up_gate_proj.weight", {2, 8}, 1, shards);
  return tensors;
}

constexpr const char* kErnieQkv = "fused_qkv, num_heads=20, num_key_value_groups=5";

TEST(AoaInPlace, TheErnieConfigurationChangesNothingWhereNothingIsCutAnew) {
  const Engine engine = MustBuild({Ernie(kErnieQkv), ErnieTensors(2), ErnieTensors(2), {}});
  for (const std::string key :
       {"ernie.layers.0.self_attn.qkv_proj.weight", "ernie.mtp_block.0.self_attn.qkv_proj.weight"})
    for (const std::string suffix : kStates)
      EXPECT_EQ(Boxes(engine, key + suffix, {2, 28}), "[0:2, 0:28] from [0:2, 0:28]; ");
}

// 28 columns are no multiple of 20 + 2 * 5 heads, but of 20 + 2 * 4: the number is that of the first published version, and
// so is the word.
TEST(AoaInPlace, TheErnieConfigurationIsTakenWhereItsWidthLeavesOneReading) {
  const Engine taken = MustBuild({Ernie(kErnieQkv), ErnieTensors(2), ErnieTensors(4), {}});
  const Engine meant =
      MustBuild({Ernie("fused_qkv_old, num_heads=20, num_key_value_heads=4"), ErnieTensors(2), ErnieTensors(4), {}});
  const std::string key = "ernie.layers.0.self_attn.qkv_proj.weight";
  for (const std::string suffix : kStates)
    EXPECT_EQ(Boxes(taken, key + suffix, {2, 28}), Boxes(meant, key + suffix, {2, 28}));
  ASSERT_EQ(taken.notes().size(), 8u);  // each of the statements that have the word
  EXPECT_NE(taken.notes()[0].find("num_key_value_heads=4 cannot be misread"), std::string::npos) << taken.notes()[0];
  EXPECT_TRUE(meant.notes().empty());
  // Into what is not cut: one rank's layout, as with the other word.
  const Engine whole = MustBuild({Ernie(kErnieQkv), ErnieTensors(2), std::nullopt, {}});
  const Engine one =
      MustBuild({Ernie("fused_qkv_old, num_heads=20, num_key_value_heads=4"), ErnieTensors(2), std::nullopt, {}});
  EXPECT_NE(Boxes(whole, key, {2, 28}), "[0:2, 0:28] from [0:2, 0:28]; ");
  for (const std::string suffix : kStates)
    EXPECT_EQ(Boxes(whole, key + suffix, {2, 28}), Boxes(one, key + suffix, {2, 28}));
}

TEST(AoaInPlace, TheErnieConfigurationIsRefusedWhereItsWordHasTwoMeanings) {
  const Diagnostic diagnostic =
      Failure({Ernie("fused_qkv, num_heads=20, num_key_value_heads=4"), ErnieTensors(2), ErnieTensors(4), {}});
  EXPECT_EQ(diagnostic.statement, 1);
  for (const char* part : {"from 2 shards to 4", "two meanings", "fused_qkv_old' with num_key_value_heads",
                           "group by group", "write 'ernie.layers.0.self_attn.qkv_proj.weight -> "})
    EXPECT_NE(diagnostic.message.find(part), std::string::npos) << part << "\n" << diagnostic.message;
}

TEST(AoaInPlace, TheErnieConfigurationWithTheWordForItsLayoutReordersEveryState) {
  const Engine engine =
      MustBuild({Ernie("fused_qkv_old, num_heads=20, num_key_value_groups=4"), ErnieTensors(2), ErnieTensors(4), {}});
  for (const std::string layer : {"ernie.layers.0.", "ernie.layers.1.", "ernie.mtp_block.0."}) {
    ExpectStatesAsTheWeight(engine, layer + "self_attn.qkv_proj.weight", {2, 28});
    ExpectStatesAsTheWeight(engine, layer + "mlp.up_gate_proj.weight", {2, 16});
  }
  ExpectStatesAsTheWeight(engine, "ernie.layers.1.mlp.shared_experts.up_gate_proj.weight", {2, 8});
}

TEST(AoaInPlace, TheNumberOfKeyValueHeadsIsAskedForByName) {
  const Diagnostic diagnostic =
      Failure({{"F -> G, fused_qkv_old, num_heads=20, num_key_value_groups=5", "G -> H, permute=[1,0]"},
               {{"F", Sharded({2, 28 * 30}, 1, 2)}},
               Tensors{{"H", Sharded({28 * 30, 2}, 0, 4)}},
               {}});
  EXPECT_NE(diagnostic.message.find("the numbers of Q heads and of K/V heads"), std::string::npos)
      << diagnostic.message;
  EXPECT_NE(diagnostic.message.find("write num_key_value_heads=4"), std::string::npos) << diagnostic.message;
}

TEST(AoaInPlace, TiedWeightsUseTheStateThatIsStoredUnderEitherName) {
  const Tensors source = {{"emb", Whole({2, 2})}, {"lm_head.w_0", Whole({2, 2})}};
  const Tensors destination = {
      {"emb", Whole({2, 2})}, {"lm_head", Whole({2, 2})}, {"emb.w_0", Whole({2, 2})}, {"lm_head.w_0", Whole({2, 2})}};
  const Engine engine = MustBuild({{"emb -> lm_head"}, source, destination, {}});
  EXPECT_EQ(Ask(engine, "lm_head.w_0", {{0, 2}, {0, 2}}), "lm_head.w_0[0:2, 0:2] from lm_head.w_0[0:2, 0:2]");
  EXPECT_EQ(engine.dropped_states(), std::vector<std::string>{"emb.w_0"});
  EXPECT_TRUE(engine.unread().empty());
  // What is not stored is no answer.
  EXPECT_NE(Ask(engine, "emb.w_0", {{0, 2}, {0, 2}}).find("'emb.w_0', which the source does not have"),
            std::string::npos);
}

TEST(AoaInPlace, StoredKeysThatNobodyReadsAreListed) {
  const Tensors source = {{"A", Whole({2})}, {"A.w_0", Whole({2})}, {"X", Whole({2})}, {"Y", Whole({2})}};
  const Engine engine = MustBuild({{"A -> B", "Y -> _"}, source, Tensors{{"B", Whole({2})}}, {}});
  EXPECT_EQ(engine.unread(), (std::vector<std::string>{"A.w_0", "X"}));
  const Engine all = MustBuild({{"A -> B", "Y -> _"}, source, std::nullopt, {}});
  EXPECT_TRUE(all.unread().empty());
  // Another in its place: lost without a word, or because a statement said so.
  const Engine shadowed = MustBuild({{"A -> X"}, source, std::nullopt, {}});
  EXPECT_EQ(shadowed.unread(), std::vector<std::string>{"X"});
  const Engine master = MustBuild({{"A -> A.w_0"}, {{"A", Whole({2})}, {"A.moment1_0", Whole({2})}}, std::nullopt, {}});
  EXPECT_EQ(master.unread(), std::vector<std::string>{"A.moment1_0"});
  const Engine replaced = MustBuild({{"X -> _", "A -> X"}, source, std::nullopt, {}});
  EXPECT_TRUE(replaced.unread().empty());
}

TEST(AoaInPlace, UnexpectedKeysAreListedWhereThatIsAllowed) {
  Program program{{"A -> B"}, {{"A", Whole({2})}}, Tensors{{"B", Whole({2})}, {"C", Whole({2})}}, {}};
  program.options.allow_unexpected = true;
  const Engine engine = MustBuild(program);
  EXPECT_EQ(engine.unexpected(), std::vector<std::string>{"C"});
  EXPECT_EQ(AskAll(engine, "C"), "");
}

TEST(AoaInPlace, ANameThatIsMadeTwiceByOneStatementIsAnError) {
  EXPECT_NE(Failure({{"A -> B, B, axis=0"}, {{"A", Whole({2})}}, std::nullopt, {}}).message.find("made twice"),
            std::string::npos);
  Program backwards{{"A, A -> B"}, {{"B", Whole({4})}}, Tensors{{"A", Whole({2})}}, {}};
  backwards.options.reverse = true;
  EXPECT_NE(Failure(backwards).message.find("fans out"), std::string::npos);
}

TEST(AoaInPlace, NamesOfOtherScriptsAndWithSlashesAndDashesCanBeWritten) {
  const Tensors source = {
      {"a-b/c", Whole({2})}, {"0.weight", Whole({2})}, {"\xE5\xB1\x82.w", Whole({2})}, {"x y", Whole({2})}};
  const Engine engine = MustBuild(
      {{"a-b/c->d", "'0.weight' -> \"new-\"", "\xE5\xB1\x82.w -> e", "\"x y\" -> 'f'"}, source, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2] from a-b/c[0:2]");
  EXPECT_EQ(AskAll(engine, "new-"), "new-[0:2] from 0.weight[0:2]");
  EXPECT_EQ(AskAll(engine, "e"), "e[0:2] from \xE5\xB1\x82.w[0:2]");
  EXPECT_EQ(AskAll(engine, "f"), "f[0:2] from x y[0:2]");
  EXPECT_EQ(engine.expanded()[1], "\"0.weight\" -> \"new-\"");
  EXPECT_NE(Failure({{"A -> 'b#1'"}, {{"A", Whole({2})}}, std::nullopt, {}}).message.find("'#'"), std::string::npos);
  EXPECT_NE(Failure({{"A -> B, axis=0, 'c'"}, {{"A", Whole({2})}}, std::nullopt, {}}).message.find("names have ended"),
            std::string::npos);
}

TEST(AoaInPlace, AnEmptyBoxOfAScalarStateIsAnEmptyAnswer) {
  const Tensors source = {{"A", Whole({2})}, {"A.beta1_pow_acc_0", Whole({1})}};
  const Engine engine = MustBuild({{"A -> B"}, source, std::nullopt, {}});
  EXPECT_EQ(Ask(engine, "B.beta1_pow_acc_0", {{1, 1}}), "");
}

}  // namespace
}  // namespace kintsugi::aoa
