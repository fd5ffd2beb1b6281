#include "callbacks/state/state_word.h"

#include <gtest/gtest.h>

#include <string>

namespace kintsugi {
namespace {

struct Case {
  const char *prefix, *parameter, *suffix, *family, *word;
  StateMeaning meaning;
};

TEST(StateWord, IsFoundBeforeAndBehindTheParameter) {
  using enum StateMeaning;
  for (const Case& expected : std::initializer_list<Case>{
           {"optimizer.exp_avg.", "h.0.w", "", "optimizer.", "exp_avg", kFirstMoment},
           {"optimizer.state.exp_avg_sq.", "h.w", "", "optimizer.state.", "exp_avg_sq", kSecondMoment},
           {"exp_avg.", "w", "", "", "exp_avg", kFirstMoment},
           {"optimizer/fp32_param/", "w", "", "optimizer/", "fp32_param", kMasterWeight},
           {"", "optim.state.h.w", ".exp_avg", "", "exp_avg", kFirstMoment},
           {"", "optimizer/h.w", "/momentum_buffer", "", "momentum_buffer", kMomentum},
           {"", "zero.w", ".fp32", "", "fp32", kMasterWeight},
           {"", "w", ".w_0", "", "w_0", kMasterWeight},
           {"", "w", ".moment1_0", "", "moment1_0", kFirstMoment},
           {"", "w", ".moment2_max_13", "", "moment2_max_13", kLargestSecondMoment},
           {"", "linear_0.w_0", "_moment2_0", "", "moment2_0", kSecondMoment},
           {"", "linear_0.w_0", "_fp32_master_0_moment2_0", "", "moment2_0", kSecondMoment},
           {"", "linear_0.w_0", "_fp32_master_1", "", "fp32_master_1", kMasterWeight},
           {"", "linear_0.b_0", "_beta1_pow_acc_0", "", "beta1_pow_acc_0", kFirstDecay}}) {
    const std::string key = std::string(expected.prefix) + expected.parameter + expected.suffix;
    const auto name = ParseStateName(key);
    ASSERT_TRUE(name) << key;
    EXPECT_EQ(name->prefix, expected.prefix) << key;
    EXPECT_EQ(name->parameter, expected.parameter) << key;
    EXPECT_EQ(name->suffix, expected.suffix) << key;
    EXPECT_EQ(name->family, expected.family) << key;
    EXPECT_EQ(name->word, expected.word) << key;
    EXPECT_EQ(name->meaning, expected.meaning) << key;
  }
}

TEST(StateWord, IsAWholePartBesideAParameter) {
  for (const char* key : {"",
                          ".",
                          "/",
                          "w",
                          "exp_avg",
                          ".exp_avg",
                          "exp_avg.",
                          "a..exp_avg",
                          "exp_avgs.w",
                          "h.my_exp_avg",
                          "h.moment1",
                          "moment1_0",
                          "_moment1_0",
                          ".w_0",
                          "w_0",
                          "h.moment1_",
                          "h.moment1_x",
                          "h.moment3_0",
                          "linear_w_0",
                          "a.b",
                          "h.w_",
                          "_fp32_master_0",
                          "h._fp32_master_0_moment1_0"})
    EXPECT_FALSE(ParseStateName(key)) << key << ": " << ParseStateName(key)->parameter;
}

TEST(StateWord, TellsWhatIsOneNumber) {
  EXPECT_TRUE(ParseStateName("w.step")->is_scalar);
  EXPECT_TRUE(ParseStateName("w.beta2_pow_acc_0")->is_scalar);
  EXPECT_FALSE(ParseStateName("w.exp_avg")->is_scalar);
}

}  // namespace
}  // namespace kintsugi
