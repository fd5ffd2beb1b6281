// Crew: who takes part, with which number; each change gives another value that holds what a crew holds.
#include "runtime/core/crew.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/random.h"

namespace kintsugi::core {
namespace {

std::vector<Rank> Ranks(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (int value : values) ranks.emplace_back(value);
  return ranks;
}

TEST(Crew, ThatIsWholeNumbersEachRankAsItself) {
  const Crew crew(4);
  EXPECT_TRUE(crew.whole());
  EXPECT_EQ(crew.ranks(), Ranks({0, 1, 2, 3}));
  EXPECT_TRUE(crew.Told().empty());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(crew.NumberOf(Rank(i)), i);
    EXPECT_EQ(crew.At(i), Rank(i));
  }
  EXPECT_FALSE(crew.Has(Rank(4)));
  EXPECT_FALSE(crew.Has(Rank(-1)));
}

TEST(Crew, WhoStaysGetsTheNumbersWithoutAGap) {
  const Crew crew = Crew(5).Without(Ranks({3, 1}));
  EXPECT_EQ(crew.ranks(), Ranks({0, 2, 4}));
  EXPECT_EQ(crew.seats(), 5);
  EXPECT_FALSE(crew.whole());
  EXPECT_EQ(crew.NumberOf(Rank(4)), 2);
  EXPECT_EQ(crew.At(1), Rank(2));
  EXPECT_EQ(crew.ToString(), "ranks 0, 2 and 4 of 5");
  EXPECT_EQ(crew.Told(), crew.ranks());
  EXPECT_THROW(crew.NumberOf(Rank(1)), CheckFailure);
  EXPECT_THROW(crew.At(3), CheckFailure);
}

TEST(Crew, WhoComesBackMakesItWhatItWas) {
  const Crew crew = Crew(4).Without(Ranks({1, 2}));
  EXPECT_EQ(crew.With(Ranks({2})).ranks(), Ranks({0, 2, 3}));
  EXPECT_EQ(crew.With(Ranks({2, 1})), Crew(4));
}

TEST(Crew, RefusesAChangeThatMakesNone) {
  const Crew crew = Crew(3).Without(Ranks({1}));
  EXPECT_THROW(crew.Without(Ranks({1})), CheckFailure) << "it takes no part";
  EXPECT_THROW(crew.Without(Ranks({0, 2})), CheckFailure) << "nobody is left";
  EXPECT_THROW(crew.Without(Ranks({0, 0})), CheckFailure) << "named twice";
  EXPECT_THROW(crew.With(Ranks({0})), CheckFailure) << "it takes part";
  EXPECT_THROW(crew.With(Ranks({3})), CheckFailure) << "it has no seat";
  EXPECT_THROW(Crew(0), CheckFailure);
}

TEST(Crew, OfAMessageIsTakenOrNamesWhatIsWrong) {
  EXPECT_EQ(*Crew::Of(3, {}), Crew(3));
  EXPECT_EQ(*Crew::Of(3, Ranks({0, 2})), Crew(3).Without(Ranks({1})));
  const auto why = [](const std::vector<Rank>& ranks) { return Crew::Of(3, ranks).status().message(); };
  EXPECT_EQ(why(Ranks({0, 3})), "rank 3 has no seat among 3");
  EXPECT_EQ(why(Ranks({-1})), "rank -1 has no seat among 3");
  EXPECT_EQ(why(Ranks({2, 0})), "rank 0 stands behind rank 2 in a crew");
  EXPECT_EQ(why(Ranks({1, 1})), "rank 1 stands behind rank 1 in a crew");
}

TEST(Crew, HoldsWhateverSequenceOfChangesMadeIt) {
  Random random(7);
  Crew crew(9);
  for (int i = 0; i < 3000; ++i) {
    const Rank rank(static_cast<int32_t>(random.Below(9)));
    if (!crew.Has(rank))
      crew = crew.With({rank});
    else if (crew.size() > 1)
      crew = crew.Without({rank});
    crew.CheckInvariants();
    for (size_t number = 0; number < crew.size(); ++number)
      ASSERT_EQ(crew.NumberOf(crew.At(static_cast<int>(number))), static_cast<int>(number));
  }
}

}  // namespace
}  // namespace kintsugi::core
