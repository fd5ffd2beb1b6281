#include "runtime/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

struct Mistake {
  int line = 0;
  Status ToStatus() const { return {StatusCode::kNotFound, "line " + std::to_string(line)}; }
};

Result<int, Mistake> Half(int number) {
  if (number % 2) return Mistake{number};
  return number / 2;
}

Status Quarter(int number, int* quarter) {
  KINTSUGI_ASSIGN_OR_RETURN(const int half, Half(number));
  KINTSUGI_ASSIGN_OR_RETURN(*quarter, Half(half));
  return Status::Ok();
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value = 3;
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(*value, 3);
  EXPECT_EQ(value.status().code(), StatusCode::kOk);
  const Result<int> failed = Status(StatusCode::kDataLoss, "gone");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), StatusCode::kDataLoss);
  EXPECT_EQ(&failed.error(), &failed.status());
}

TEST(Result, HasAnErrorOfAnotherTypeAndItsStatus) {
  EXPECT_EQ(*Half(4), 2);
  EXPECT_EQ(Half(4).status().code(), StatusCode::kOk);
  EXPECT_EQ(Half(5).error().line, 5);
  EXPECT_EQ(Half(5).status().ToString(), "NOT_FOUND: line 5");
}

TEST(Result, AnErrorOfAnyTypeIsPassedOnAsAStatus) {
  int quarter = 0;
  EXPECT_TRUE(Quarter(8, &quarter).ok());
  EXPECT_EQ(quarter, 2);
  EXPECT_EQ(Quarter(6, &quarter).ToString(), "NOT_FOUND: line 3");
}

TEST(Result, GivesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>, Mistake> made = std::make_unique<int>(7);
  EXPECT_EQ(*std::move(made).value(), 7);
}

// A value that could be taken for an error, as it converts to one.
struct Line {
  int number = 0;
  operator Mistake() const { return {number}; }  // NOLINT: implicit on purpose
};

TEST(Result, TakesWhatConvertsToAnErrorAsTheValueThatItIs) {
  const Result<Line, Mistake> value = Line{3}, failed = Mistake{4};
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->number, 3);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().line, 4);
}

TEST(Result, ChecksThatSomebodyHasLooked) {
  EXPECT_THROW((void)Half(5).value(), CheckFailure);
  EXPECT_THROW((void)*Half(5), CheckFailure);
  EXPECT_THROW((void)Half(4).error(), CheckFailure);
  EXPECT_THROW((void)Result<int>(Status::Ok()), CheckFailure);
}

}  // namespace
}  // namespace kintsugi
