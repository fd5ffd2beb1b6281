#include "runtime/core/refused_step.h"

#include <gtest/gtest.h>

#include <array>

namespace kintsugi::core {
namespace {

using Says = StepVerdict::Says;

StepFacts Of(const std::string& why = "", uint32_t times = 0, std::optional<bool> differs = {}, bool doubts = false) {
  return {.why = why, .doubts = doubts, .times = times, .differs = differs};
}

StepNews NewsOf(const std::vector<StepFacts>& told) {
  StepNews news;
  news.ranks = told.size();
  for (size_t i = 0; i < told.size(); ++i) news.Add(Rank(static_cast<int32_t>(i)), told[i]);
  return news;
}

std::optional<StepVerdict> Judged(const std::vector<StepFacts>& told) { return Judge(NewsOf(told)); }

void ExpectSays(const std::vector<StepFacts>& told, Says says, const std::vector<Rank>& to_blame = {},
                bool is_exact = true) {
  const auto verdict = Judged(told);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(static_cast<int>(verdict->says), static_cast<int>(says));
  EXPECT_EQ(verdict->to_blame, to_blame);
  if (says == Says::kData) EXPECT_EQ(verdict->is_exact, is_exact);
}

TEST(JudgeStep, SaysNothingWhereNobodyRefuses) {
  EXPECT_FALSE(Judged({Of(), Of()}));
  EXPECT_FALSE(Judged({Of("", 1, false), Of("", 1, true)}));
}

TEST(JudgeStep, HasItComputedAgainFirst) { ExpectSays({Of(), Of("nan")}, Says::kAgain); }

TEST(JudgeStep, BlamesTheDataForTheSameNumbers) {
  ExpectSays({Of("", 1, false), Of("nan", 1, false)}, Says::kData);
  ExpectSays({Of("nan", 1), Of("", 1, false)}, Says::kData);  // one of them has come since
}

TEST(JudgeStep, BlamesTheMachinesThatAloneComputeOtherwise) {
  ExpectSays({Of("", 1, true), Of("nan", 1, false)}, Says::kMachine, {Rank(0)});
  ExpectSays({Of("", 1, false), Of("nan", 1, true)}, Says::kMachine, {Rank(1)});
  ExpectSays({Of("", 1, true, true), Of("", 1, false)}, Says::kMachine, {Rank(0)});  // good now
}

TEST(JudgeStep, BlamesNoMachineWhereAllComputeOtherwise) {
  ExpectSays({Of("", 1, true), Of("nan", 1, true)}, Says::kData, {}, false);
  ExpectSays({Of("nan", 1, true)}, Says::kData, {}, false);
  ExpectSays({Of("", 1, true, true), Of("", 1, true, true)}, Says::kUnsettled);
}

TEST(JudgeStep, HearsNoWordThatWasJudgedBefore) {
  EXPECT_FALSE(Judged({Of("nan", 1, true, true), Of("", 2), Of("nan", 1, false)}));
  ExpectSays({Of("nan", 1, true), Of("nan", 2, false)}, Says::kData);
}

TEST(JudgeStep, HasItComputedAgainWhereOnlyThoseCanCompareThatComputeOtherwise) {
  ExpectSays({Of("nan", 1, true), Of("", 1), Of("", 1)}, Says::kAgain);
  ExpectSays({Of("", 1, true, true), Of("", 1)}, Says::kAgain);
}

TEST(StepNews, IsNoLongerWhereAllRefuse) {
  StepNews few, many;
  for (int32_t i = 0; i < 1024; ++i) {
    const StepFacts facts = Of("loss is nan in batch " + std::to_string(1000 + i));
    if (i < 9) few.Add(Rank(i), facts);
    many.Add(Rank(i), facts);
  }
  EXPECT_EQ(few.why, many.why);
  EXPECT_NE(Judge(many)->why.find("rank 7: loss is nan in batch 1007; and 1016 more"), std::string::npos);
}

TEST(StepNumbers, DifferAsFarAsBothCame) {
  EXPECT_FALSE(Differ({{"loss", {1}}, {"dp", {1, 2, 3}}}, {{"dp", {1, 2}}}));
  EXPECT_TRUE(Differ({{"dp", {1, 2, 3}}}, {{"dp", {1, 4}}}));
  EXPECT_TRUE(Differ({{"loss", {1}}, {"dp", {1}}}, {{"loss", {2}}, {"dp", {1}}}));
}

// Ranks that make step 5, time and again.
struct Ranks {
  std::array<RefusedStep, 2> all;
  std::array<uint64_t, 2> numbers{1, 2};

  void Compute() {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].Begin(Step(5));
      all[i].Note("", numbers[i]);
    }
  }
  StepNews Told() const { return NewsOf({all[0].Tell(Step(4)), all[1].Tell(Step(4))}); }
  std::string Learn(std::initializer_list<size_t> ranks = {0, 1}) {
    const StepNews told = Told();
    std::string said;
    for (size_t rank : ranks)
      if (const auto verdict = all[rank].Learn(Step(4), told)) said = verdict->Describe(Step(5));
    return said;
  }
  bool LeftOut() const { return all[0].LeftOut(Step(5)) && all[1].LeftOut(Step(5)); }
};

TEST(RefusedStep, IsLeftOutOnceItIsRefusedAgainByTheSameNumbers) {
  Ranks ranks;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn({0});  // a fault, before the other one has heard of it: all tell the same again
  EXPECT_EQ(ranks.Learn(), "step 5 is refused (rank 0: nan): it is computed again");
  EXPECT_FALSE(ranks.LeftOut());
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn({1});
  EXPECT_NE(ranks.Learn().find("the data is to blame"), std::string::npos);
  EXPECT_TRUE(ranks.LeftOut());
  ranks.all[1] = RefusedStep();  // is lost before the step is left out
  ranks.Learn();
  EXPECT_TRUE(ranks.LeftOut());
  for (RefusedStep& rank : ranks.all) rank.Begin(Step(5));
  for (RefusedStep& rank : ranks.all) rank.Begin(Step(6));
  EXPECT_EQ(ranks.all[1].all_left_out(), std::set<uint64_t>{5});
  ranks.all[0] = RefusedStep();  // who comes later knows it, too
  StepNews told = NewsOf({ranks.all[0].Tell(Step(5)), ranks.all[1].Tell(Step(5))});
  EXPECT_FALSE(ranks.all[0].Learn(Step(5), told));
  EXPECT_EQ(ranks.all[0].all_left_out(), std::set<uint64_t>{5});
  told = NewsOf({ranks.all[0].Tell(Step(3))});  // the run goes back to before it, and leaves it out again
  EXPECT_FALSE(ranks.all[0].Learn(Step(3), told));
  EXPECT_TRUE(ranks.all[0].all_left_out().empty());
  EXPECT_TRUE(ranks.all[0].LeftOut(Step(5)));
  EXPECT_FALSE(ranks.all[0].LeftOut(Step(4)));
}

// Two ranks that have refused step 5 twice, with `back` steps before it, and stand at 4.
Ranks Ordered(uint64_t back) {
  Ranks ranks;
  for (int i = 0; i < 2; ++i) {
    ranks.Compute();
    ranks.all[0].Refuse("nan", back);
    ranks.Learn();
  }
  return ranks;
}

std::vector<uint64_t> LeftOutBehind(const RefusedStep& rank, Step step) {
  std::vector<uint64_t> steps;
  for (auto next = rank.NextLeftOut(step); next; next = rank.NextLeftOut(*next)) steps.push_back(next->value());
  return steps;
}

TEST(RefusedStep, OrdersTheRunBackWhereOthersGoWithIt) {
  const Ranks ranks = Ordered(2);
  for (const RefusedStep& rank : ranks.all) {
    EXPECT_EQ(rank.BackFrom(Step(4)), Step(3));
    EXPECT_EQ(rank.BackFrom(Step(2)), std::nullopt);  // it is there
  }
  EXPECT_EQ(Ordered(9).all[0].BackFrom(Step(4)), Step(1));
  EXPECT_EQ(Ordered(0).all[0].BackFrom(Step(4)), std::nullopt);
}

TEST(RefusedStep, LeavesOutWhatTheRunCanGoBackToBeforeAndNothingElse) {
  using Steps = std::vector<uint64_t>;
  for (const auto& [standing, steps] :
       std::map<uint64_t, Steps>{{1, {3, 4, 5}}, {2, {3, 4, 5}}, {3, {4, 5}}, {4, {5}}}) {
    Ranks ranks = Ordered(2);
    ranks.all[1] = RefusedStep();  // it is lost on the way, and comes to know as much
    const StepNews told = NewsOf({ranks.all[0].Tell(Step(standing)), ranks.all[1].Tell(Step(standing))});
    for (RefusedStep& rank : ranks.all) {
      rank.Learn(Step(standing), told);
      rank.GoOn();
      EXPECT_EQ(LeftOutBehind(rank, Step(0)), steps) << standing;
      EXPECT_EQ(rank.BackFrom(Step(standing)), std::nullopt);
    }
  }
}

TEST(RefusedStep, OrdersTheRunBackAgainWhereAFaultCameBetween) {
  Ranks ranks = Ordered(2);
  ranks.Learn();
  EXPECT_EQ(ranks.all[1].BackFrom(Step(4)), Step(3));
  ranks.all[0] = RefusedStep();  // who refused it is lost
  ranks.Learn();
  EXPECT_EQ(ranks.all[1].BackFrom(Step(4)), Step(3));
  EXPECT_TRUE(ranks.LeftOut());
}

TEST(RefusedStep, SaysHowFarTheRunGoesBack) {
  const RefusedStep rank = Ordered(2).all[0];
  EXPECT_EQ(rank.DescribeBack(Step(1)), "from step 1 on again: steps 3 to 5 are left out");
  EXPECT_EQ(rank.DescribeBack(Step(3)),
            "from step 3 on again: steps 4 to 5 are left out, and those before them stay: there is nothing older to go "
            "back to");
  EXPECT_EQ(rank.DescribeBack(Step(4)), "");
}

TEST(RefusedStep, TellsWhoseMachineItWas) {
  Ranks ranks;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn();
  ranks.numbers[1] = 3;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  EXPECT_NE(ranks.Learn().find("rank 1 alone computed otherwise than before"), std::string::npos);
  EXPECT_FALSE(ranks.LeftOut());
  EXPECT_FALSE(ranks.all[0].IsToBlame(Rank(0)));
  EXPECT_TRUE(ranks.all[1].IsToBlame(Rank(1)));
}

TEST(RefusedStep, ThatIsGoodTheSecondTimeIsDoubtedByWhoComputedOtherwiseOnce) {
  Ranks ranks;
  ranks.numbers = {9, 2};
  ranks.Compute();
  ranks.all[1].Refuse("nan", 0);
  ranks.Learn();
  for (const bool is_alone : {true, false}) {
    Ranks again = ranks;
    again.numbers = {1, is_alone ? 2u : 3u};
    again.Compute();
    EXPECT_TRUE(again.all[0].IsOtherThanBefore());
    EXPECT_EQ(again.all[1].IsOtherThanBefore(), !is_alone);
    again.all[0].Doubt();
    const std::string said = again.Learn();
    EXPECT_NE(said.find("step 5, refused before and good when it was made again"), std::string::npos) << said;
    EXPECT_EQ(again.all[0].IsToBlame(Rank(0)), is_alone);
    if (is_alone) continue;
    again.numbers = {7, 8};  // such a program is not asked a third time
    again.Compute();
    EXPECT_FALSE(again.all[0].IsOtherThanBefore() || again.all[1].IsOtherThanBefore());
    EXPECT_FALSE(again.LeftOut());
  }
}

TEST(RefusedStep, IsNotRefusedAgainByAnIncidentBeforeItBegins) {
  Ranks ranks;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn();
  for (RefusedStep& rank : ranks.all) rank.GoOn();
  EXPECT_FALSE(ranks.all[0].Tell(Step(4)).differs);
  EXPECT_EQ(ranks.Learn(), "");
  EXPECT_FALSE(ranks.LeftOut());
  ranks.numbers[1] = 3;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  EXPECT_NE(ranks.Learn().find("rank 1 alone computed otherwise than before"), std::string::npos);
}

TEST(RefusedStep, ComparesNothingWithWhatOtherRanksComputed) {
  Ranks ranks;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn();
  for (RefusedStep& rank : ranks.all) rank.ForgetNumbers();  // one has left, and a rank does its part
  ranks.numbers[1] = 3;
  ranks.Compute();
  EXPECT_FALSE(ranks.all[1].IsOtherThanBefore());
  ranks.all[0].Refuse("nan", 0);
  EXPECT_NE(ranks.Learn().find("the data is to blame"), std::string::npos);
}

TEST(RefusedStep, KeepsItsNumbersWhereTheStepIsBrokenBeforeItHasAny) {
  Ranks ranks;
  ranks.Compute();
  ranks.all[0].Refuse("nan", 0);
  ranks.Learn();
  for (RefusedStep& rank : ranks.all) rank.Begin(Step(5));
  ranks.all[1].Refuse("nothing was read", 0);
  ranks.Learn();
  ranks.numbers[1] = 7;
  ranks.Compute();
  EXPECT_TRUE(ranks.all[1].IsOtherThanBefore());
}

}  // namespace
}  // namespace kintsugi::core
