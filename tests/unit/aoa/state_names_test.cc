// What states of optimizers may be called, beside Paddle's suffixes: what proves it, and that they follow all the same.
#include "replica/aoa/state_names.h"

#include <set>

#include "tests/unit/aoa/programs.h"

namespace kintsugi::aoa {
namespace {

Tensors Described(const std::vector<std::string>& keys, const Shape& shape = {2, 4}) {
  Tensors tensors;
  for (const std::string& key : keys) {
    const bool is_scalar = key.ends_with("step") || key.find(".step.") != std::string::npos;
    tensors[key] = Whole(is_scalar ? Shape{} : shape);
  }
  return tensors;
}

// "the model key", with ":" and how many numbers; or "-": no state.
std::string ModelOf(const StateNames& names, const std::string& key) {
  const SplitKey split = names.Split(key);
  if (!split.form) return "-";
  return split.model + (split.form->is_scalar ? " (scalar)" : "");
}

TEST(AoaStateNames, PaddlesSuffixesNeedNoProof) {
  const StateNames names({}, nullptr);
  EXPECT_EQ(ModelOf(names, "a.w_0"), "a");
  EXPECT_EQ(ModelOf(names, "a.w_0.b"), "-");
  EXPECT_EQ(ModelOf(names, "a.moment1_0.moment2_0"), "a.moment1_0");
  EXPECT_EQ(ModelOf(names, ".w_0"), "-");
  EXPECT_EQ(ModelOf(names, "a.beta2_pow_acc_0"), "a (scalar)");
  EXPECT_EQ(ModelOf(names, "a.moment3_0"), "-");
  EXPECT_EQ(ModelOf(names, "optimizer.exp_avg.a"), "-");
}

struct Spelling {
  const char* of;
  std::vector<std::string> keys;
  const char *state, *model;
};

TEST(AoaStateNames, AreProvenByTheKeysBesideThem) {
  for (const Spelling& spelling : std::vector<Spelling>{
           {"byte_lm",
            {"h.a", "h.b", "optimizer.exp_avg.h.a", "optimizer.exp_avg.h.b"},
            "optimizer.exp_avg.h.c",
            "h.c"},
           {"Megatron", {"d.a", "optimizer.state.exp_avg.d.a"}, "optimizer.state.exp_avg.d.c", "d.c"},
           {"Megatron, wrapped",
            {"d.a", "optimizer.state.exp_avg.module.d.a"},
            "optimizer.state.exp_avg.module.c",
            "c"},
           {"kintsugi.torch", {"model/a.w", "optimizer/a.w.exp_avg"}, "optimizer/c.exp_avg", "model/c"},
           {"kintsugi.torch, steps", {"model/a.w", "optimizer/a.w.step"}, "optimizer/c.step", "model/c (scalar)"},
           {"DCP", {"model.a.w", "optim.state.a.w.exp_avg"}, "optim.state.c.exp_avg", "model.c"},
           {"DCP, of an application",
            {"app.model.a", "app.optim.state.a.exp_avg"},
            "app.optim.state.c.exp_avg",
            "app.model.c"},
           {"DeepSpeed", {"module.a.w", "zero.a.w.exp_avg", "zero.a.w.fp32"}, "zero.c.fp32", "module.c"},
           {"Paddle, another optimizer", {"a", "a.moment1_1"}, "c.moment1_1", "c"},
           {"Paddle, static", {"linear_0.b_0", "linear_0.b_0_moment1_0"}, "c.b_0_moment1_0", "c.b_0"},
           {"two optimizers", {"d.a", "g.b", "optim_d.a.exp_avg", "optim_g.b.exp_avg"}, "optim_g.c.exp_avg", "g.c"},
           {"byte_lm, masters alone", {"optimizer.master.h.a", "optimizer.exp_avg.h.a"}, "optimizer.master.h.c", "h.c"},
           {"one nested in another", {"a", "a.b", "o.a.exp_avg", "o.a.b.exp_avg"}, "o.c.exp_avg", "c"}}) {
    const StateNames names(Described(spelling.keys), nullptr);
    EXPECT_EQ(ModelOf(names, spelling.state), spelling.model) << spelling.of;
    // What one side proves holds on the other.
    const Tensors described = Described(spelling.keys);
    EXPECT_EQ(ModelOf(StateNames({}, &described), spelling.state), spelling.model) << spelling.of;
  }
}

TEST(AoaStateNames, AreTensorsLikeAnyOtherWhereTheKeysDoNotProveThem) {
  const auto unproven = [](const Tensors& tensors, const std::string& key) {
    return ModelOf(StateNames(tensors, nullptr), key) == "-";
  };
  // A module that is called like a state.
  EXPECT_TRUE(unproven(Described({"clock.step.weight", "clock.weight"}), "clock.step.weight"));
  EXPECT_TRUE(unproven(Described({"sum.weight", "bias"}), "sum.weight"));
  // One of them has no model key.
  EXPECT_TRUE(unproven(Described({"a", "optimizer.exp_avg.a", "optimizer.exp_avg.lost"}), "optimizer.exp_avg.a"));
  // One has another shape.
  Tensors flat = Described({"a", "b", "optimizer.exp_avg.a", "optimizer.exp_avg.b"});
  flat["optimizer.exp_avg.b"] = Whole({8});
  EXPECT_TRUE(unproven(flat, "optimizer.exp_avg.a"));
  Tensors steps = Described({"a", "a.step"});
  EXPECT_FALSE(unproven(steps, "a.step"));
  steps["a.step"] = Whole({2, 4});
  EXPECT_TRUE(unproven(steps, "a.step"));
  // States that are cut flat, beside one another.
  Tensors pair = Described({"o.exp_avg.a", "o.exp_avg_sq.a"});
  EXPECT_FALSE(unproven(pair, "o.exp_avg.a"));
  pair["a"] = Whole({8});
  EXPECT_TRUE(unproven(pair, "o.exp_avg.a"));
  // Two model keys for one state, and no plain name among them.
  EXPECT_TRUE(unproven(Described({"ema.a", "net.a", "optim.a.exp_avg"}), "optim.a.exp_avg"));
  EXPECT_FALSE(unproven(Described({"ema.a", "a", "optim.a.exp_avg"}), "optim.a.exp_avg"));
  // A prefix of ids is not a form: "l.2.e.1" has nothing to do with the tenth layer's expert.
  EXPECT_TRUE(unproven(Described({"l.2.e.0", "l.2.e.1", "l.10.e.1.exp_avg"}), "l.10.e.1.exp_avg"));
}

TEST(AoaStateNames, AParameterThatEndsLikePaddlesMasterWeightIsOne) {
  const StateNames names(Described({"linear_0.w_0", "linear_0.w_0_moment1_0", "linear_0.w_0_fp32_master_0"}), nullptr);
  EXPECT_EQ(ModelOf(names, "linear_0.w_0"), "-");
  EXPECT_EQ(ModelOf(names, "linear_0.w_0_moment1_0"), "linear_0.w_0");
  EXPECT_EQ(ModelOf(names, "linear_0.w_0_fp32_master_0"), "linear_0.w_0");
}

TEST(AoaStateNames, ManyFamiliesTeachNothingInsteadOfTakingForEver) {
  Tensors tensors;
  for (int i = 0; i < 20000; ++i) {
    tensors["m" + std::to_string(i)] = Whole({2});
    tensors["o" + std::to_string(i) + ".exp_avg.m" + std::to_string(i)] = Whole({2});
  }
  const StateNames names(tensors, nullptr);
  int states = 0;
  for (const auto& [key, tensor] : tensors) states += names.IsState(key);
  EXPECT_LT(states, 100);
}

// Each of these calls its states otherwise; a state is made of what the source calls it.
TEST(AoaStateNames, StandForEachOtherAcrossTheSides) {
  struct Names {
    const char *model, *first_moment, *second_moment, *master;
  };
  const auto described = [](const Names& names, const std::string& key, const Shape& shape) {
    Tensors tensors = {{names.model + key, Whole(shape, DType::kBFloat16)}};
    for (const std::string form : {names.first_moment, names.second_moment, names.master}) {
      std::string state = form;
      tensors[state.replace(state.find('*'), 1, key)] = Whole(shape);
    }
    return tensors;
  };
  const Names all[] = {
      {"", "*.moment1_0", "*.moment2_0", "*.w_0"},
      {"", "optimizer.state.exp_avg.*", "optimizer.state.exp_avg_sq.*", "optimizer.state.fp32_param.*"},
      {"model.", "optim.state.*.exp_avg", "optim.state.*.exp_avg_sq", "optim.state.*.master_param"},
      {"model/", "optimizer/*.exp_avg", "optimizer/*.exp_avg_sq", "optimizer/*.master"},
      {"", "*_fp32_master_0_moment1_0", "*_fp32_master_0_moment2_0", "*_fp32_master_0"},
      {"", "*_moment1_0", "*_moment2_0", "*_fp32_master_0"},
  };
  for (const Names& from : all)
    for (const Names& to : all) {
      const std::string a = std::string(from.model) + "a", d = std::string(to.model) + "d";
      const Engine engine =
          MustBuild({{a + "^T -> " + d}, described(from, "a", {2, 4}), described(to, "d", {4, 2}), {}});
      EXPECT_TRUE(engine.dropped_states().empty()) << engine.dropped_states()[0];
      EXPECT_TRUE(engine.unread().empty()) << engine.unread()[0];
      for (const auto& [target, source] :
           {std::pair(to.first_moment, from.first_moment), std::pair(to.second_moment, from.second_moment),
            std::pair(to.master, from.master)}) {
        std::string asked = target, stored = source;
        asked.replace(asked.find('*'), 1, "d");
        stored.replace(stored.find('*'), 1, "a");
        EXPECT_EQ(Ask(engine, asked, {{1, 3}, {0, 2}}), asked + "[1:3, 0:2] from " + stored + "[0:2, 1:3] by [1, 0]");
      }
    }
}

TEST(AoaStateNames, MayBeTheSameOnBothSidesWhereTheModelKeysAreNot) {
  const Tensors source = Described({"model.a", "optim.state.a.exp_avg"}, {2, 4});
  const Tensors destination = Described({"a", "optim.state.a.exp_avg"}, {4, 2});
  const Engine engine = MustBuild({{"model.a^T -> a"}, source, destination, {}});
  EXPECT_EQ(Ask(engine, "optim.state.a.exp_avg", {{0, 4}, {0, 2}}),
            "optim.state.a.exp_avg[0:4, 0:2] from optim.state.a.exp_avg[0:2, 0:4] by [1, 0]");
}

TEST(AoaStateNames, StepsComeWholeFromTheFirstSource) {
  const Tensors source = Described({"model/a", "model/b", "optimizer/a.step", "optimizer/b.step"});
  const Tensors destination = Described({"model/d", "optimizer/d.step"}, {4, 4});
  const Engine engine = MustBuild({{"model/b, model/a -> model/d"}, source, destination, {}});
  EXPECT_EQ(Ask(engine, "optimizer/d.step", {}), "optimizer/d.step[] from optimizer/b.step[]");
}

TEST(AoaStateNames, CanBeNamedInStatements) {
  const Tensors source = Described({"a", "b", "optimizer.exp_avg.a", "optimizer.exp_avg.b"});
  Tensors destination = Described({"d", "optimizer.exp_avg.d"}, {4, 4});
  destination["optimizer.exp_avg.d"].dtype = DType::kFloat16;
  const Engine engine =
      MustBuild({{"a, b -> t", "t -> d", "optimizer.exp_avg.t -> optimizer.exp_avg.d, dtype='float16'"},
                 source,
                 destination,
                 {}});
  EXPECT_EQ(AskAll(engine, "optimizer.exp_avg.d"),
            "optimizer.exp_avg.d[0:2, 0:4] from optimizer.exp_avg.a[0:2, 0:4] by float16; "
            "optimizer.exp_avg.d[2:4, 0:4] from optimizer.exp_avg.b[0:2, 0:4] by float16");
}

TEST(AoaStateNames, WithoutADestinationAllThatAreStoredComeOut) {
  const Tensors source = Described({"a", "b", "c", "optimizer.exp_avg.a", "optimizer.exp_avg.b", "optimizer.step.a"});
  const Engine engine = MustBuild({{"a^T -> d", "b -> _"}, source, std::nullopt, {}});
  std::string outputs;
  for (const auto& [key, output] : engine.outputs())
    outputs += key + DescribeShape(output.shape) + (output.follows ? " follows; " : "; ");
  EXPECT_EQ(outputs, "c[2, 4]; d[4, 2]; optimizer.exp_avg.d[4, 2] follows; optimizer.step.d[] follows; ");
  EXPECT_EQ(AskAll(engine, "optimizer.exp_avg.d"),
            "optimizer.exp_avg.d[0:4, 0:2] from optimizer.exp_avg.a[0:2, 0:4] by [1, 0]");
}

TEST(AoaStateNames, FollowAParameterThatIsNotStored) {
  const Tensors source =
      Described({"optimizer.master.a", "optimizer.exp_avg.a", "optimizer.master.b", "optimizer.exp_avg.b"});
  const Engine saved = MustBuild({{"a -> d", "optimizer.master.b -> b"}, source, std::nullopt, {}});
  std::string outputs;
  for (const auto& [key, output] : saved.outputs()) outputs += output.is_stored ? key + "; " : "";
  EXPECT_EQ(outputs, "b; optimizer.exp_avg.b; optimizer.exp_avg.d; optimizer.master.d; ");
  const Tensors destination = Described({"optimizer.master.d", "optimizer.exp_avg.d"}, {4, 2});
  const Engine engine = MustBuild({{"a^T -> d", "b -> _"}, source, destination, {}});
  EXPECT_TRUE(engine.dropped_states().empty());
  for (const std::string state : {"optimizer.master.", "optimizer.exp_avg."})
    EXPECT_EQ(Ask(engine, state + "d", {{0, 4}, {0, 2}}),
              state + "d[0:4, 0:2] from " + state + "a[0:2, 0:4] by [1, 0]");
}

TEST(AoaStateNames, OfTwoOptimizersOfOneParameterAreTwo) {
  const Tensors source = Described({"a", "one.exp_avg.a", "two.exp_avg.a"});
  const Tensors destination = Described({"d", "one.exp_avg.d", "two.exp_avg.d"});
  for (const auto& wanted : {std::optional(destination), std::optional<Tensors>()}) {
    const Engine engine = MustBuild({{"a -> d"}, source, wanted, {}});
    for (const std::string of : {"one", "two"})
      EXPECT_EQ(Ask(engine, of + ".exp_avg.d", {{0, 2}, {0, 4}}),
                of + ".exp_avg.d[0:2, 0:4] from " + of + ".exp_avg.a[0:2, 0:4]");
    EXPECT_EQ(engine.outputs().contains("one.exp_avg.d"), !wanted);
    EXPECT_EQ(engine.outputs().contains("two.exp_avg.d"), !wanted);
  }
}

// What a state of `model` is called by each family; "*" is the parameter.
struct Family {
  const char* of;
  std::string model;
  std::vector<std::string> states;
};

std::string With(std::string form, const std::string& parameter) { return form.replace(form.find('*'), 1, parameter); }

// Which state of which stored key each output is, and that whoever reads the outputs finds the same.
void ExpectTaken(const Family& family, const std::string& from, const std::string& to) {
  SCOPED_TRACE(std::string(family.of) + ": " + from + " -> " + to);
  std::vector<std::string> stored = {from, With(family.model, "other")};
  const std::string own = from.substr(family.model.size() - 1);
  for (const std::string& parameter : {own, std::string("other")})
    for (const std::string& form : family.states) stored.push_back(With(form, parameter));
  const Engine engine = MustBuild({{from + "^T -> " + to}, Described(stored), std::nullopt, {}});
  ASSERT_EQ(engine.outputs().size(), stored.size());
  EXPECT_TRUE(engine.unread().empty());
  Tensors outputs;
  for (const auto& [key, output] : engine.outputs()) outputs[key] = {output.shape, output.dtype, {}};
  const StateNames names(outputs, nullptr);
  std::set<std::string> taken;
  for (const auto& [key, output] : engine.outputs()) {
    const SplitKey split = names.Split(key, &outputs);
    if (!split.form || split.model != to) continue;
    const std::string answer = AskAll(engine, key);
    for (const std::string& form : family.states)
      if (answer.find(" from " + With(form, own) + "[") != std::string::npos) taken.insert(form);
    EXPECT_EQ(output.shape, split.form->is_scalar ? Shape() : Shape({4, 2})) << key;
  }
  EXPECT_EQ(taken, std::set<std::string>(family.states.begin(), family.states.end()));
}

TEST(AoaStateNames, ARenameWithoutADestinationTakesTheStatesAlong) {
  const Family families[] = {
      {"Paddle", "*", {"*.w_0", "*.moment1_0", "*.moment2_0"}},
      {"Paddle, static", "*", {"*_moment1_0", "*_moment2_0", "*_fp32_master_0"}},
      {"byte_lm", "*", {"optimizer.exp_avg.*", "optimizer.exp_avg_sq.*", "optimizer.step.*"}},
      {"Megatron", "*", {"optimizer.state.exp_avg.*", "optimizer.state.fp32_param.*"}},
      {"kintsugi.torch", "model/*", {"optimizer/*.exp_avg", "optimizer/*.exp_avg_sq", "optimizer/*.step"}},
      {"DCP", "model.*", {"optim.state.*.exp_avg", "optim.state.*.step"}},
      {"DeepSpeed", "module.*", {"zero.*.exp_avg", "zero.*.fp32", "zero.*.step"}},
  };
  for (const Family& family : families) {
    // Every parameter, so that the names of those that stay prove theirs too.
    ExpectTaken(family, With(family.model, "w"), With(family.model, "v"));
    ExpectTaken(family, With(family.model, "w"), With(family.model, "block.0.w"));
    if (family.model == "*") continue;
    // Off with the prefix, and on with it again.
    const Family bare{family.of, "*", family.states};
    for (const auto& [from, to] : {std::pair(family, std::string("w")), std::pair(bare, With(family.model, "w"))}) {
      const std::string whole = With(from.model, "w");
      std::vector<std::string> stored = {whole};
      for (const std::string& form : from.states) stored.push_back(With(form, "w"));
      const Engine engine = MustBuild({{whole + " -> " + to}, Described(stored), std::nullopt, {}});
      Tensors outputs;
      for (const auto& [key, output] : engine.outputs()) outputs[key] = {output.shape, output.dtype, {}};
      ASSERT_EQ(outputs.size(), stored.size()) << family.of;
      const StateNames names(outputs, nullptr);
      size_t led = 0;
      for (const auto& [key, output] : engine.outputs()) {
        if (key == to) continue;
        EXPECT_EQ(names.Split(key, &outputs).model, to) << family.of << ": " << key;
        EXPECT_NE(AskAll(engine, key).find(" from "), std::string::npos) << AskAll(engine, key);
        ++led;
      }
      EXPECT_EQ(led, family.states.size()) << family.of;
    }
  }
}

TEST(AoaStateNames, ThereAndBackAgainAreCalledAsBefore) {
  struct Way {
    std::string model, state;
  };
  for (const auto& [model, state] : {Way{"model/w", "optimizer/w.exp_avg"}, Way{"module.w", "zero.w.exp_avg"},
                                     Way{"w", "optimizer.exp_avg.w"}, Way{"w", "w.moment1_0"}}) {
    Tensors tensors = Described({model, state});
    for (const std::string& statement : {model + " -> q", "q -> " + model}) {
      const Engine engine = MustBuild({{statement}, tensors, std::nullopt, {}});
      tensors.clear();
      for (const auto& [key, output] : engine.outputs()) tensors[key] = {output.shape, output.dtype, {}};
    }
    EXPECT_TRUE(tensors.size() == 2 && tensors.contains(model) && tensors.contains(state)) << tensors.begin()->first;
  }
  // One of two: the file on the way has bare names beside others.
  const Tensors both = Described({"model/v", "model/w", "optimizer/v.exp_avg", "optimizer/w.exp_avg"});
  Tensors tensors = both;
  for (const char* statement : {"model/w -> q", "q -> model/w"}) {
    const Engine engine = MustBuild({{statement}, tensors, std::nullopt, {}});
    tensors.clear();
    for (const auto& [key, output] : engine.outputs()) tensors[key] = {output.shape, output.dtype, {}};
  }
  ASSERT_EQ(tensors.size(), both.size());
  for (const auto& [key, tensor] : both) EXPECT_TRUE(tensors.contains(key)) << key;
  // A source whose states have the whole name keeps to that.
  const Engine engine = MustBuild({{"q -> model/w"},
                                   Described({"q", "optimizer/q.exp_avg", "model/v", "optimizer/model/v.exp_avg"}),
                                   std::nullopt,
                                   {}});
  EXPECT_TRUE(engine.outputs().contains("optimizer/model/w.exp_avg"));
}

TEST(AoaStateNames, TwoStatesOfOneNameAreRefused) {
  const Tensors source = Described({"model/a", "model/b", "optimizer/a.exp_avg", "optimizer/b.exp_avg"});
  const Diagnostic failure = Failure({{"model/a -> b"}, source, std::nullopt, {}});
  EXPECT_NE(failure.message.find("'optimizer/b.exp_avg' is what the state of 'b' is called as well"), std::string::npos)
      << failure.message;
  const Engine engine =
      MustBuild({{"model/a -> b", "optimizer/a.exp_avg -> optimizer/c.exp_avg"}, source, std::nullopt, {}});
  EXPECT_EQ(AskAll(engine, "optimizer/b.exp_avg"), "optimizer/b.exp_avg[0:2, 0:4] from optimizer/b.exp_avg[0:2, 0:4]");
}

}  // namespace
}  // namespace kintsugi::aoa
