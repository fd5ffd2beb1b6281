#include "replica/save/missing_states.h"

#include <gtest/gtest.h>

namespace kintsugi::checkpoint {
namespace {

using Keys = std::vector<std::string>;

TEST(MissingStates, NamesTheParameterAndTheStateWhereverItStands) {
  for (const auto& [prefix, suffix] : {std::pair("optimizer.exp_avg.", ""), std::pair("optimizer.state.exp_avg.", ""),
                                       std::pair("zero.", ".exp_avg"), std::pair("", ".exp_avg")}) {
    const auto name = [&, prefix = std::string(prefix), suffix = std::string(suffix)](std::string_view state,
                                                                                      const std::string& parameter) {
      std::string text = prefix + parameter + suffix;
      return text.replace(text.find("exp_avg"), 7, state);
    };
    Keys keys = {"a.w", "b", "buffer", name("exp_avg", "a.w"), name("exp_avg_sq", "a.w"), name("exp_avg", "b")};
    const Keys found = MissingStates(keys);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_NE(found[0].find("b' lacks the optimizer's 'exp_avg_sq'"), std::string::npos) << found[0];
    EXPECT_NE(found[0].find("a.w' has"), std::string::npos) << found[0];
    keys.push_back(name("exp_avg_sq", "b"));
    EXPECT_TRUE(MissingStates(keys).empty());
  }
}

TEST(MissingStates, LetsOptimizersOfAnotherKindBe) {
  EXPECT_TRUE(MissingStates({"o.momentum_buffer.w", "o.exp_avg.b", "o.exp_avg_sq.b", "o.step"}).empty());
  EXPECT_TRUE(
      MissingStates({"exp_avg", "w.moment1_0", "w.moment2_0", "w.w_0", "norm.moment1_0", "norm.moment2_0"}).empty());
  EXPECT_TRUE(MissingStates({"first.exp_avg.w", "second.exp_avg.w", "second.exp_avg_sq.w"}).empty());
}

TEST(MissingStates, CountsWhatItDoesNotName) {
  Keys keys = {"o.exp_avg.whole", "o.exp_avg_sq.whole"};
  for (int i = 0; i < 50; ++i) keys.push_back("o.exp_avg." + std::to_string(i));
  const Keys found = MissingStates(keys);
  ASSERT_EQ(found.size(), 11u);
  EXPECT_NE(found.back().find("40 more"), std::string::npos) << found.back();
}

}  // namespace
}  // namespace kintsugi::checkpoint
