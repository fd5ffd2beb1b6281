// Each row of the table in trust.h.
#include "runtime/core/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kintsugi::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr HeldState kFirst{.of = Incarnation(1), .step = Step(5), .clean = true};
constexpr HeldState kSecond{.of = Incarnation(2), .step = Step(6), .clean = true};

TEST(Trust, IsGoodAtFirst) {
  const Trust trust;
  EXPECT_FALSE(trust.fresh() || trust.needs_repair() || trust.adopted() || trust.held());
  trust.Check();
}

TEST(Trust, IsLostWithTheProcess) {
  for (const bool ever_ran : {false, true}) {
    Trust trust;
    trust.Adopt();
    trust.Damage({"w"});
    trust.Lose(Incarnation(1), ever_ran);
    EXPECT_TRUE(trust.fresh() && !trust.adopted());
    EXPECT_EQ(trust.needs_repair(), ever_ran) << "before the run goes a new process registers the state anew";
    EXPECT_THAT(trust.damaged_keys(), IsEmpty());
  }
}

TEST(Trust, InMemoryThatIsHeldOutlivesItsProcess) {
  Trust trust;
  trust.Lose(Incarnation(1), true);
  trust.Hold(kFirst);
  EXPECT_EQ(trust.held(), kFirst);
  trust.Lose(Incarnation(2), true);  // which had not come so far
  EXPECT_EQ(trust.held(), kFirst);
  trust.Settle();
  EXPECT_EQ(trust.held(), kFirst) << "it is older, and whole until the rank is in its loop";
  trust.Outgrow();
  EXPECT_FALSE(trust.held());
}

TEST(Trust, IsNotInMemoryOfALifeThatWasTorn) {
  Trust trust;
  trust.Hold(kFirst);
  trust.Tear();
  trust.Lose(Incarnation(2), true);
  EXPECT_FALSE(trust.held()) << "of that life or of one before";
  trust.Hold(kSecond);
  EXPECT_FALSE(trust.held()) << "whenever its launcher tells it";
  trust.Hold(HeldState{.of = Incarnation(3)});
  EXPECT_TRUE(trust.held());
}

TEST(Trust, InMemoryThatWasDoubtedIsGoneForGood) {
  Trust trust;
  trust.Hold(kFirst);
  trust.DoubtHeld();
  EXPECT_FALSE(trust.held());
  trust.Hold(kFirst);
  EXPECT_FALSE(trust.held()) << "told again, and doubted still";
  trust.Hold(kSecond);
  EXPECT_TRUE(trust.held()) << "of a life that nobody doubted";
  trust.Leave(Incarnation(2));
  EXPECT_FALSE(trust.held());
  trust.DoubtHeld();
  EXPECT_EQ(trust.doubted(), Incarnation(2)) << "where nothing is held nothing is doubted";
}

TEST(Trust, OfTheLauncherThatHoldsNothing) {
  Trust trust;
  trust.Hold(kFirst);
  trust.Hold(std::nullopt);
  EXPECT_FALSE(trust.held());
}

TEST(Trust, IsDamagedInWhatIsNamed) {
  Trust trust;
  trust.Damage({"w"});
  trust.Damage({"b"});
  EXPECT_THAT(trust.damaged_keys(), ElementsAre("w", "b"));
  EXPECT_TRUE(trust.needs_repair() && trust.is_damaged_only());
  trust.Drop({"b", "other"});
  EXPECT_TRUE(trust.needs_repair());
  trust.Drop({"w"});
  EXPECT_FALSE(trust.needs_repair()) << "what was damaged is no state any more";
}

TEST(Trust, IsTornWhateverIsNamedLater) {
  Trust trust;
  trust.Tear();
  trust.Damage({"w"});
  EXPECT_FALSE(trust.is_damaged_only());
  trust.Drop({"w"});
  EXPECT_TRUE(trust.needs_repair());
}

TEST(Trust, IsTornWhereMoreThanWhatWasNamedIsDamaged) {
  Trust trust;
  trust.Damage({"w"});
  trust.Widen();
  EXPECT_TRUE(trust.needs_repair() && !trust.is_damaged_only());
  Trust good;
  good.Widen();
  EXPECT_FALSE(good.needs_repair());
}

TEST(Trust, SettlesAndCountsAnew) {
  Trust trust;
  trust.Find(true);
  trust.Damage({"w"});
  EXPECT_EQ(trust.CountMismatch(), 1);
  EXPECT_EQ(trust.CountMismatch(), 2);
  trust.Settle();
  EXPECT_FALSE(trust.fresh() || trust.needs_repair());
  EXPECT_EQ(trust.mismatches(), 0);
  trust.Check();
}

}  // namespace
}  // namespace kintsugi::core
