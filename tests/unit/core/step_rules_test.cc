#include "runtime/core/step_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace kintsugi::core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

StepRules Of(std::string_view veto) {
  Result<Veto> parsed = Veto::Parse(veto);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return StepRules(*parsed);
}

// Why the step is refused, or what its rules lack; "": it is good.
std::string Judged(std::string_view veto, std::optional<double> loss, std::optional<double> norm,
                   bool* of_all = nullptr) {
  StepRules rules = Of(veto);
  rules.Begin();
  if (loss) rules.NoteLoss(*loss, {});
  if (norm) rules.NoteNorm(*norm);
  const auto judged = rules.Judge();
  if (!judged.ok()) return judged.status().message();
  if (of_all && *judged) *of_all = (*judged)->of_all;
  return *judged ? (*judged)->why : "";
}

TEST(Veto, IsReadWordByWord) {
  const Result<Veto> veto = Veto::Parse(" nan, spike:6 ,norm:1e3,back:3,most:0");
  ASSERT_TRUE(veto.ok());
  EXPECT_TRUE(veto->nan && veto->spike == 6 && veto->norm == 1000 && veto->back == 3 && veto->most == 0 &&
              veto->has_rules());
  ASSERT_TRUE(Veto::Parse("").ok());
  EXPECT_FALSE(Veto::Parse("")->has_rules());
  EXPECT_FALSE(Veto::Parse("most:3")->has_rules());
  EXPECT_FALSE(Veto::Parse("back:3")->has_rules());
  EXPECT_FALSE(Veto::Parse(",")->most);
}

TEST(Veto, NamesTheWordThatIsNoRule) {
  for (const std::string wrong :
       {"nan:1", "spike", "spike:0", "spike:-1", "spike:", "norm:inf", "norm:nan", "norm:x", "norm:1 2", "most:-1",
        "most:1.5", "most:99999999999", "most:", "back:0", "back:-1", "back:", "nans", "6", "Nan"}) {
    const Result<Veto> veto = Veto::Parse("nan," + wrong);
    ASSERT_FALSE(veto.ok()) << wrong;
    EXPECT_EQ(veto.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(veto.status().message().find("--veto nan," + wrong + ": '" + wrong + "' is no rule"), std::string::npos);
  }
}

TEST(StepRules, TellASpikeByTheUsualDeviation) {
  StepRules rules = Of("spike:3");
  const auto pass = [&](double loss) {
    rules.Begin();
    rules.NoteLoss(loss, {});
    rules.PassGate();
  };
  for (int k = 0; k < 15; ++k) pass(1.0 + k % 2);
  EXPECT_EQ(rules.Deviations(1e9), 0);  // too few to say
  pass(2.0);
  EXPECT_NEAR(rules.Deviations(3.5), 4, 1e-9);
  EXPECT_LT(rules.Deviations(-1e9), 0);
  rules.Begin();
  rules.NoteLoss(3.5, {});
  ASSERT_TRUE(rules.Judge().ok() && *rules.Judge());
  EXPECT_EQ((*rules.Judge())->why, "its loss 3.5 is 4.0 standard deviations above the usual");
  EXPECT_FALSE((*rules.Judge())->of_all);
  for (int k = 0; k < 100; ++k) pass(1.0);
  EXPECT_EQ(rules.Deviations(1.0), 0);
  EXPECT_EQ(rules.Deviations(1.1), kInfinite);  // the older ones are forgotten
  EXPECT_EQ(rules.losses().size(), StepRules::kUsual);
}

TEST(StepRules, KeepNoLossOfAStepThatWasNotGood) {
  StepRules rules = Of("spike:3");
  rules.Begin();
  rules.NoteLoss(1, {});
  EXPECT_TRUE(rules.losses().empty());
  StepRules others = Of("nan");
  others.NoteLoss(1, {});
  others.PassGate();
  EXPECT_TRUE(others.losses().empty());  // which nobody goes by
}

TEST(StepRules, RefuseByLossesAndByTheNormOfAll) {
  bool of_all = true;
  EXPECT_EQ(Judged("nan", kInfinite, {}, &of_all), "its loss is inf");
  EXPECT_FALSE(of_all);
  EXPECT_EQ(Judged("nan", -kNan, 1.0), "its loss is nan");
  EXPECT_EQ(Judged("nan", 1.0, kNan, &of_all), "the norm of the gradients is nan");
  EXPECT_TRUE(of_all);
  EXPECT_EQ(Judged("norm:1", {}, 2.0), "the norm of the gradients is 2");
  EXPECT_EQ(Judged("norm:1", {}, -kNan), "the norm of the gradients is nan");
  for (const auto& [veto, loss, norm] :
       {std::tuple<const char*, std::optional<double>, std::optional<double>>{"nan", 1.0, std::nullopt},
        {"nan", std::nullopt, 1.0},
        {"norm:1", std::nullopt, 1.0},
        {"norm:1", kNan, 1.0},
        {"", kNan, kNan},
        {"most:3", kNan, kNan}})
    EXPECT_EQ(Judged(veto, loss, norm), "") << veto;
}

TEST(StepRules, SayWhatTheyLack) {
  EXPECT_EQ(Judged("norm:1", 1.0, {}).find("--veto norm has nothing to go by"), 0u);
  EXPECT_EQ(Judged("nan", {}, {}).find("--veto nan has nothing to go by"), 0u);
  EXPECT_EQ(Judged("spike:3", {}, 1.0).find("--veto spike goes by losses"), 0u);
}

TEST(StepRules, AskForTheNormWhereTheLossDoesNotDecide) {
  const auto asks = [](std::string_view veto, double loss) {
    StepRules rules = Of(veto);
    rules.NoteLoss(loss, {});
    return rules.AsksNorm();
  };
  EXPECT_TRUE(asks("nan", 1) && asks("norm:1", 1) && asks("norm:1", kNan));
  EXPECT_FALSE(asks("nan", kNan) || asks("spike:3", 1) || asks("", 1));
}

TEST(StepRules, NameTheFirstSamples) {
  StepRules rules = Of("nan");
  std::vector<uint64_t> samples(10);
  std::iota(samples.begin(), samples.end(), 3);
  rules.NoteLoss(kNan, samples);
  EXPECT_EQ((*rules.Judge())->why, "its loss is nan (samples 3, 4, 5, 6, 7, 8, 9, 10 and 2 more)");
  rules.Begin();
  rules.NoteLoss(kNan, std::vector<uint64_t>{7});
  EXPECT_EQ((*rules.Judge())->why, "its loss is nan (samples 7)");
}

}  // namespace
}  // namespace kintsugi::core
