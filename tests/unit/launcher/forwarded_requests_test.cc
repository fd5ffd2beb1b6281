// Requests that another launcher answers.
#include "runtime/launcher/leader/forwarded_requests.h"

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
    return forwarded.Begin(whom, [this](std::string answer) { answers.push_back(std::move(answer)); });
  }
  ForwardedRequests forwarded;
  std::vector<std::string> answers;
};

TEST_F(Asking, AnAnswerComesOnceAndFromWhoeverWasAsked) {
  const uint64_t first = Ask(1), second = Ask(2);
  EXPECT_NE(first, second);
  forwarded.OnAnswer(2, first, "of another node");
  forwarded.OnAnswer(1, second + 1, "of no request");
  EXPECT_THAT(answers, IsEmpty());
  forwarded.OnAnswer(1, first, "done");
  forwarded.OnAnswer(1, first, "done twice");
  EXPECT_THAT(answers, ElementsAre("done"));
}

TEST_F(Asking, WhoeverIsLostAnswersNobody) {
  const uint64_t first = Ask(1), second = Ask(2);
  forwarded.RefuseAllOf(1, "node 1 was lost");
  EXPECT_THAT(answers, ElementsAre(HasSubstr("node 1 was lost")));
  forwarded.OnAnswer(1, first, "too late");
  forwarded.OnAnswer(2, second, "done");
  EXPECT_EQ(answers.size(), 2u);
}

TEST_F(Asking, OneThatAsksAgainWhenRefusedIsNotRefusedTwice) {
  int refused = 0;
  forwarded.Begin(1, [&](std::string) {
    ++refused;
    forwarded.Begin(1, [&](std::string) { ++refused; });
  });
  forwarded.RefuseAllOf(1, "lost");
  EXPECT_EQ(refused, 1);
}

TEST_F(Asking, WhatDidNotGoOutIsRefused) {
  forwarded.Refuse(Ask(1), "it is away");
  EXPECT_THAT(answers, ElementsAre(HasSubstr("it is away")));
  EXPECT_THROW(forwarded.Refuse(1, "again"), CheckFailure);
}

}  // namespace
}  // namespace kintsugi
