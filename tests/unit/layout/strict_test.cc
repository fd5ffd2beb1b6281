#include "replica/layout/strict.h"

#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Stored: a, m (nobody asks), p. Asked for: a, p and, by rank 3 alone, u.
Metadata Stored() {
  return World().Add(0, Piece("a", {4}, {0}, {4})).Add(1, Piece("m", {4}, {0}, {4})).Add(0, Object("p")).Build();
}
Metadata Requested() {
  return World().Add(0, Piece("a", {4}, {0}, {4})).Add(1, Object("p")).Add(3, Piece("u", {2}, {0}, {2})).Build();
}

struct Row {
  const char* name;
  char unexpected, missing;  // i ignored, l logged, r returned, e error
  bool removes;
};

// The table of the reference, row by row.
TEST(StrictHandling, IsTheReferencesTable) {
  const Row rows[] = {{"assume_ok_unexpected", 'i', 'i', false},
                      {"log_unexpected", 'l', 'i', true},
                      {"log_all", 'l', 'l', true},
                      {"raise_unexpected", 'e', 'i', false},
                      {"raise_all", 'e', 'e', false},
                      {"return_unexpected", 'r', 'i', true},
                      {"return_all", 'r', 'r', true},
                      {"ignore_all", 'i', 'i', true}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto mode = StrictHandlingFromName(row.name);
    ASSERT_TRUE(mode);
    EXPECT_EQ(StrictHandlingName(*mode), row.name);
    EXPECT_EQ(JudgesMissing(*mode), row.missing != 'i');
    const StrictVerdict verdict = JudgeStrictly(*mode, Stored(), Requested());
    std::string errors, logged, returned;
    for (const LayoutError& error : verdict.errors) errors += error.key;
    for (const LayoutError& error : verdict.to_log) logged += error.key;
    for (const Mismatch& mismatch : verdict.unexpected) returned += mismatch.key;
    for (const Mismatch& mismatch : verdict.missing) returned += mismatch.key;
    const auto keys = [&](char treatment) {
      return std::string(row.unexpected == treatment ? "u" : "") + (row.missing == treatment ? "m" : "");
    };
    EXPECT_EQ(errors, keys('e'));
    EXPECT_EQ(logged, keys('l'));
    EXPECT_EQ(returned, keys('r'));
    if (row.removes)
      EXPECT_THAT(verdict.removed, ElementsAre("u"));
    else
      EXPECT_THAT(verdict.removed, IsEmpty());
  }
  EXPECT_FALSE(StrictHandlingFromName("raise_some"));
}

TEST(StrictHandling, NamesKeyAndRanks) {
  const StrictVerdict verdict = JudgeStrictly(StrictHandling::kRaiseAll, Stored(), Requested());
  ASSERT_EQ(verdict.errors.size(), 2u);
  ExpectError(verdict.errors[0], ErrorCode::kUnexpected, "u", {3}, "[[0, 2)]", {"tensor 'u'", "not in the checkpoint"});
  ExpectError(verdict.errors[1], ErrorCode::kMissing, "m", {1}, "[[0, 4)]", {"tensor 'm'", "asked for by no rank"});
  EXPECT_EQ(verdict.errors[0].ToStatus().code(), StatusCode::kNotFound);
  const StrictVerdict returned = JudgeStrictly(StrictHandling::kReturnAll, Stored(), Requested());
  EXPECT_THAT(returned.unexpected, ElementsAre(Mismatch{"u", KeyKind::kTensor, {3}}));
  EXPECT_THAT(returned.missing, ElementsAre(Mismatch{"m", KeyKind::kTensor, {1}}));
}

TEST(StrictHandling, FindsNothingWhereAllMatches) {
  for (int i = 0; i < 8; ++i) {
    const StrictVerdict verdict = JudgeStrictly(static_cast<StrictHandling>(i), Stored(), Stored());
    EXPECT_TRUE(verdict.errors.empty() && verdict.to_log.empty() && verdict.unexpected.empty() &&
                verdict.missing.empty() && verdict.removed.empty());
  }
}

}  // namespace
}  // namespace kintsugi::layout
