#include "runtime/inject/ledger.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

Injection Parsed(std::string_view spec) { return std::move(ParseInjection(spec)).value(); }

TEST(Ledger, HandsOutUntilFired) {
  Ledger ledger;
  const InjectionId first = *ledger.Add(Parsed("kill:2@7"));
  const InjectionId second = *ledger.Add(Parsed("throw:2@9"));
  ASSERT_TRUE(ledger.Add(Parsed("kill:0@3")).ok());
  ASSERT_EQ(ledger.ForRank(Rank(2)).size(), 2u);
  ASSERT_TRUE(ledger.MarkHanded(first).ok());
  EXPECT_EQ(ledger.ForRank(Rank(2)).size(), 2u) << "handed but not fired: the next life is told again";
  ASSERT_EQ(ledger.MarkFiredMask(Rank(2), uint64_t{1} << first.value()).size(), 1u);
  const std::vector<LedgerEntry> left = ledger.ForRank(Rank(2));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id, second);
  EXPECT_EQ(ledger.MarkHanded(first).code(), StatusCode::kFailedPrecondition);
}

TEST(Ledger, FiresEachInjectionOfAMaskOnce) {
  Ledger ledger;
  ASSERT_TRUE(ledger.Add(Parsed("kill:2@7")).ok());
  ASSERT_TRUE(ledger.Add(Parsed("kill:1@7")).ok());
  const std::vector<LedgerEntry> fired = ledger.MarkFiredMask(Rank(2), ~uint64_t{0});
  ASSERT_EQ(fired.size(), 1u) << "a rank's mask fires no other rank's injections and no unknown ones";
  EXPECT_EQ(fired[0].injection.rank, Rank(2));
  EXPECT_TRUE(ledger.MarkFiredMask(Rank(2), ~uint64_t{0}).empty());
  EXPECT_EQ(ledger.ForRank(Rank(1)).size(), 1u);
}

TEST(Ledger, RefusesForeignIdsAndASixtyFifthInjection) {
  Ledger ledger;
  EXPECT_EQ(ledger.MarkHanded(InjectionId(0)).code(), StatusCode::kNotFound);
  for (size_t i = 0; i < Ledger::kMaxInjections; ++i) ASSERT_TRUE(ledger.Add(Parsed("kill:0@1")).ok());
  EXPECT_EQ(ledger.Add(Parsed("kill:0@1")).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger.MarkFiredMask(Rank(0), uint64_t{1} << 63).size(), 1u);
}

}  // namespace
}  // namespace kintsugi
