// Requests that another launcher answers.
#include "runtime/launcher/errands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Asking : ::testing::Test {
  uint64_t Ask(int whom) {
    return errands.Begin(whom, [this](std::string answer) { answers.push_back(std::move(answer)); });
  }
  Errands errands;
  std::vector<std::string> answers;
};

TEST_F(Asking, AnAnswerComesOnceAndFromWhoeverWasAsked) {
  const uint64_t first = Ask(1), second = Ask(2);
  EXPECT_NE(first, second);
  errands.OnAnswer(2, first, "of another node");
  errands.OnAnswer(1, second + 1, "of no request");
  EXPECT_THAT(answers, IsEmpty());
  errands.OnAnswer(1, first, "done");
  errands.OnAnswer(1, first, "done twice");
  EXPECT_THAT(answers, ElementsAre("done"));
}

TEST_F(Asking, WhoeverIsLostAnswersNobody) {
  const uint64_t first = Ask(1), second = Ask(2);
  errands.RefuseAllOf(1, "node 1 was lost");
  EXPECT_THAT(answers, ElementsAre(HasSubstr("node 1 was lost")));
  errands.OnAnswer(1, first, "too late");
  errands.OnAnswer(2, second, "done");
  EXPECT_EQ(answers.size(), 2u);
}

TEST_F(Asking, OneThatAsksAgainWhenRefusedIsNotRefusedTwice) {
  int refused = 0;
  errands.Begin(1, [&](std::string) {
    ++refused;
    errands.Begin(1, [&](std::string) { ++refused; });
  });
  errands.RefuseAllOf(1, "lost");
  EXPECT_EQ(refused, 1);
}

TEST_F(Asking, WhatDidNotGoOutIsRefused) {
  errands.Refuse(Ask(1), "it is away");
  EXPECT_THAT(answers, ElementsAre(HasSubstr("it is away")));
  EXPECT_THROW(errands.Refuse(1, "again"), CheckFailure);
}

}  // namespace
}  // namespace kintsugi
