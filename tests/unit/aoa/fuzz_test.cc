// Programs that nobody meant: random, mutated, and ones that would grow without bound. Whatever they are, Build comes
// back with an engine that answers or with an error that points into the program.
#include <algorithm>

#include "runtime/base/random.h"
#include "tests/unit/aoa/programs.h"
#include "tests/unit/aoa/random_program.h"

namespace kintsugi::aoa {
namespace {

Options Small() {
  Options options;
  options.limits = {.names = 2000, .name_bytes = 100000, .slices = 2000, .steps = 50};
  return options;
}

std::string Join(const std::vector<std::string>& statements) {
  std::string text;
  for (const std::string& statement : statements) text += statement + "\n";
  return text;
}

// Builds, and asks what comes out for every output.
void Try(const Program& program, int* accepted) {
  const auto engine = Engine::Build(program);
  if (!engine.ok()) {
    const Diagnostic& diagnostic = engine.error();
    ASSERT_FALSE(diagnostic.message.empty()) << Join(program.statements);
    ASSERT_LE(diagnostic.column, static_cast<int>(diagnostic.text.size()) + 1) << Join(program.statements);
    ASSERT_NE(engine.status().code(), StatusCode::kInternal) << engine.status().ToString();
    return;
  }
  ++*accepted;
  for (const auto& [key, output] : engine->outputs()) {
    for (const std::string& name : {key, key + ".w_0", key + ".beta1_pow_acc_0", "o.exp_avg." + key, "o.step." + key}) {
      const auto pieces = engine->FindShardSources({name, WholeBox(output.shape), std::nullopt});
      ASSERT_NE(pieces.status().code(), StatusCode::kInternal) << pieces.status().ToString() << "\n"
                                                               << Join(program.statements);
    }
  }
}

Tensors Keys() {
  return {{"a", Whole({2, 4})},
          {"b", Whole({2, 4})},
          {"x.0", Whole({4})},
          {"x.1", Whole({4})},
          {"e.1.2", Whole({})},
          {"a.moment1_0", Whole({2, 4})},
          {"a.beta1_pow_acc_0", Whole({1})},
          {"o.exp_avg.a", Whole({2, 4})},
          {"o.exp_avg.b", Whole({2, 4})},
          {"o.step.a", Whole({})},
          {"z", Whole({0, 3})}};
}

TEST(AoaFuzz, WordsInAnyOrderNeverBreakTheEngine) {
  static const char* const kWords[] = {"a",
                                       "b",
                                       "c",
                                       "x.*",
                                       "x.$LAYER_ID",
                                       "e.$LAYER_ID.$EXPERT_ID",
                                       "d",
                                       "_",
                                       "a^T",
                                       "t[0:2]",
                                       "z",
                                       "a.moment1_0",
                                       "o.exp_avg.b",
                                       "o.exp_avg.c",
                                       "o.step.a",
                                       "->",
                                       "->",
                                       ",",
                                       ",",
                                       ",",
                                       "=",
                                       "[",
                                       "]",
                                       ":",
                                       "axis",
                                       "permute",
                                       "dtype",
                                       "reshape",
                                       "reshape='[4,2,1]'",
                                       "reshape='[8]'",
                                       "stacked",
                                       "optional",
                                       "mine",
                                       "# c",
                                       "e.$EXPERT_ID",
                                       "num_key_value_heads=1",
                                       "squeeze=[0]",
                                       "unsqueeze=[1]",
                                       "src_dtype",
                                       "dst_dtype",
                                       "fused_ffn",
                                       "fused_qkv",
                                       "fused_qkv_old",
                                       "num_heads=2",
                                       "num_key_value_groups=1",
                                       "'float16'",
                                       "'[1,0]'",
                                       "[1,0]",
                                       "[]",
                                       "0",
                                       "1",
                                       "2",
                                       "axis=0",
                                       "axis=1",
                                       "permute=[1,0]",
                                       "dtype='float16'",
                                       "\n",
                                       "\n",
                                       "$LAYER_ID_OFFSET",
                                       "x.$LAYER_ID_OFFSET",
                                       "^",
                                       "\"",
                                       "'"};
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    Random random(seed);
    std::string text;
    const uint64_t length = 1 + random.Below(30);
    for (uint64_t i = 0; i < length; ++i) text += std::string(kWords[random.Below(std::size(kWords))]) + " ";
    Program program{{text}, Keys(), std::nullopt, Small()};
    if (random.Chance(0.3)) program.destination = Keys();
    program.macros["mine"] = [&](const MacroCall& call) -> Result<std::vector<std::string>> {
      if (call.left.size() != 1) return Status(StatusCode::kInvalidArgument, "one");
      return std::vector<std::string>{call.left[0] + " -> t.1, t.2, axis=0", "t.2 -> " + call.right[0] + ", squeeze=[0]"};
    };
    program.options.reverse = random.Chance(0.3);
    program.options.optional = random.Chance(0.3);
    Try(program, &accepted);
    if (HasFatalFailure()) return;
  }
}

TEST(AoaFuzz, RandomBytesNeverBreakTheLexer) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    Random random(seed);
    std::string text;
    const uint64_t length = random.Below(40);
    for (uint64_t i = 0; i < length; ++i)
      text += static_cast<char>(random.Chance(0.8) ? 0x20 + random.Below(0x5f) : random.Below(256));
    Try({{text}, Keys(), std::nullopt, Small()}, &accepted);
    if (HasFatalFailure()) return;
  }
}

TEST(AoaFuzz, MutatedProgramsNeverBreakTheEngine) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Program program = (random.Chance(0.5) ? MakeForward(random) : MakeReversed(random)).program;
    program.options.limits = Small().limits;
    std::string text = Join(program.statements);
    static const std::string kCharacters = "a.x01239$*^_-> ,=[]:'\"\n";
    for (uint64_t i = 1 + random.Below(3); i > 0 && !text.empty(); --i) {
      const size_t at = random.Below(text.size());
      const char c = kCharacters[random.Below(kCharacters.size())];
      switch (random.Below(4)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random.Below(4));
          break;
        default:
          text.insert(at, text.substr(random.Below(text.size()), random.Below(20)));
          break;
      }
    }
    program.statements = {text};
    if (random.Chance(0.1)) program.options.reverse = !program.options.reverse;
    if (random.Chance(0.1)) program.destination.reset();
    Try(program, &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 1000);  // many mutations must get past the parser
}

// ---- growth ------------------------------------------------------------------------------------------------------

void ExpectLimit(std::vector<std::string> statements, Tensors source, const std::string& limit,
                 std::optional<Tensors> destination = std::nullopt) {
  Options options;  // as the defaults, but sooner
  options.limits = {.names = 100'000, .name_bytes = 10'000'000, .slices = 100'000, .steps = 1000};
  const auto engine = Engine::Build({std::move(statements), std::move(source), std::move(destination), options});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted) << engine.status().ToString();
  EXPECT_NE(engine.status().message().find(limit), std::string::npos) << engine.status().ToString();
}

TEST(AoaLimits, AnArrayDoesNotGrowWithoutBound) {
  ExpectLimit({"a -> t[0:9223372036854775807], axis=0"}, Keys(), "names");
  ExpectLimit({"x.$LAYER_ID -> t.$LAYER_ID[0:9223372036854775807], axis=0"}, Keys(), "names");
  ExpectLimit(std::vector<std::string>(10, "a -> t[0:20000], axis=0"), Keys(), "names");
  ExpectLimit({"a -> " + std::string(1000, 'n') + "[0:20000], axis=0"}, Keys(), "bytes of names");
}

TEST(AoaLimits, ShardsAndHeadsDoNotMakePartsWithoutBound) {
  ExpectLimit({"a -> d, fused_qkv, num_heads=9223372036854775807, num_key_value_groups=1",
               "a -> q, k, v, fused_qkv, "
               "num_heads=9223372036854775807, num_key_value_groups=1"},
              Keys(), "names");
  constexpr int64_t kLength = 510 * 509;
  ExpectLimit({"f -> d, fused_ffn, axis=0"}, {{"f", Sharded({kLength}, 0, 510)}}, "names",
              Tensors{{"d", Sharded({kLength}, 0, 509)}});
}

TEST(AoaLimits, DoublingMergesDoNotGrowWithoutBound) {
  std::vector<std::string> statements = {"a, a -> t"};
  for (int i = 0; i < 62; ++i) statements.push_back("t, t -> t");
  ExpectLimit(statements, Keys(), "slices");
  // Without elements only the shape grows.
  statements[0] = "z, z -> t, axis=1";
  for (size_t i = 1; i < statements.size(); ++i) statements[i] = "t, t -> t, axis=1";
  ExpectLimit(statements, Keys(), "slices");
}

TEST(AoaLimits, StepsDoNotPileUpWithoutBound) {
  ExpectLimit(std::vector<std::string>(2000, "a -> a, permute=[1,0]"), Keys(), "steps");
}

TEST(AoaLimits, LongProgramsAndLongTracesAreNoRecursion) {
  std::vector<std::string> statements = {"a -> t.0"};
  for (int i = 0; i < 50000; ++i) statements.push_back("t." + std::to_string(i) + " -> t." + std::to_string(i + 1));
  statements.push_back("t.50000 -> d, fused_ffn, axis=1");
  const Engine engine = MustBuild({statements, Keys(), Tensors{{"d", Whole({2, 4})}}, {}});
  EXPECT_EQ(AskAll(engine, "d"), "d[0:2, 0:2] from a[0:2, 0:2]; d[0:2, 2:4] from a[0:2, 2:4]");
}

}  // namespace
}  // namespace kintsugi::aoa
