#include "runtime/core/consent.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kintsugi::core {
namespace {

constexpr Ballot U = Ballot::kUnknown, F = Ballot::kForgotten, E = Ballot::kEnded, L = Ballot::kLive;

bool HasConsent(const std::vector<Ballot>& votes) { return ConsentOf(votes, TieRule::kLowestRank) == Consent::kYes; }

TEST(Consent, AMajorityOfThoseThatMayLiveActs) {
  EXPECT_TRUE(HasConsent({L, L, L, U}));
  EXPECT_FALSE(HasConsent({L, U, U, U}));
  EXPECT_TRUE(HasConsent({L, E, E, E}));  // killed processes on reachable nodes block nobody
  EXPECT_TRUE(HasConsent({L, L, E, U}));
  EXPECT_TRUE(HasConsent({}));
}

TEST(Consent, AnEvenSplitGoesToTheLowestRankThatMayLive) {
  EXPECT_TRUE(HasConsent({L, L, U, U}));
  EXPECT_FALSE(HasConsent({U, U, L, L}));
  EXPECT_TRUE(HasConsent({E, U, L, E}) == false);  // rank 1 is the lowest that may live
  EXPECT_TRUE(HasConsent({E, L, U, E}));
}

// In their earlier life they may have been counted by those who cannot be asked.
TEST(Consent, ForgottenRanksCountOnlyWhereAllOthersCanBeAsked) {
  EXPECT_TRUE(HasConsent({L, F, F, E}));
  EXPECT_TRUE(HasConsent({L, F, F, F}));
  EXPECT_TRUE(HasConsent({F, F, F, F})) << "nobody lives";
  EXPECT_TRUE(HasConsent({L, L, E, U}));
  EXPECT_FALSE(HasConsent({L, F, F, U}));
  EXPECT_TRUE(HasConsent({L, L, F, U})) << "half, with the lowest rank";
  EXPECT_FALSE(HasConsent({F, L, L, U})) << "half, and the lowest rank may be with the others";
  EXPECT_TRUE(HasConsent({F, L, L, E}));
}

// Every way to deal up to six ranks to two sides that do not hear each other: each rank lives on one side, or has ended
// and either side, both or none knows it, or lives unseen by both.
TEST(Consent, TwoSidesNeverBothAct) {
  for (int n = 1; n <= 6; ++n) {
    int cases = 1, acting = 0;
    for (int i = 0; i < n; ++i) cases *= 7;
    for (int c = 0; c < cases; ++c) {
      std::vector<Ballot> a(static_cast<size_t>(n), U), b = a;
      for (int rest = c, r = 0; r < n; ++r, rest /= 7) {
        const auto i = static_cast<size_t>(r);
        switch (rest % 7) {
          case 0:
            a[i] = L;
            break;
          case 1:
            b[i] = L;
            break;
          case 2:
            a[i] = E;
            break;
          case 3:
            b[i] = E;
            break;
          case 4:
            a[i] = b[i] = E;
            break;
          default:
            break;  // 5: ended, nobody knows; 6: lives unseen
        }
      }
      ASSERT_FALSE(HasConsent(a) && HasConsent(b) && !std::all_of(a.begin(), a.end(), [](Ballot v) { return v == E; }))
          << "case " << c << " of " << n << " ranks";
      acting += HasConsent(a) || HasConsent(b);
    }
    EXPECT_GT(acting, 0);
  }
}

}  // namespace
}  // namespace kintsugi::core
