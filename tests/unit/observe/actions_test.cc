// Orders through the page: who may give them, what else is answered, and that each is answered once.
#include "tools/observe/actions.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kintsugi::observe {
namespace {

using namespace std::chrono_literals;

constexpr const char* kToken = "0123456789abcdef";

class Log final : public LogSink {
 public:
  void Write(LogLevel, std::string_view line) override { lines += std::string(line) + "\n"; }
  std::string lines;
};

struct Desk {
  explicit Desk(ActionLimits limits = {}) : actions(std::make_unique<Actions>(io, PageToken(kToken), log, limits)) {}

  static HttpRequest Right(const std::string& action, const std::string& body = "{}") {
    return {.method = "POST",
            .path = "/actions/" + action,
            .authorization = std::string("Bearer ") + kToken,
            .host = "127.0.0.1:8080",
            .origin = "http://127.0.0.1:8080",
            .content_type = "application/json",
            .body = body};
  }
  // The status it is answered with at once; 0: it is not.
  unsigned Ask(const HttpRequest& request) {
    const size_t before = answers.size();
    actions->OnRequest(request, [this](HttpResponse answer) { answers.push_back(std::move(answer)); });
    return answers.size() > before ? answers.back().status : 0;
  }
  void Turn() {
    io.restart();
    io.poll();
  }

  boost::asio::io_context io;
  std::shared_ptr<Log> log = std::make_shared<Log>();
  std::unique_ptr<Actions> actions;
  std::vector<HttpResponse> answers;
};

TEST(Actions, AnOrderWithTheTokenReachesTheRunAndItsAnswerTheCaller) {
  Desk desk;
  EXPECT_EQ(desk.Ask(Desk::Right("save", "")), 0u);
  auto orders = desk.actions->TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].request, R"({"command":"save"})");
  EXPECT_TRUE(desk.actions->TakeOrders().empty()) << "an order is carried out once";
  orders[0].respond(R"({"ok":true,"step":7})");
  desk.Turn();
  ASSERT_EQ(desk.answers.size(), 1u);
  EXPECT_EQ(desk.answers[0].status, 200u);
  EXPECT_EQ(desk.answers[0].body, "{\"ok\":true,\"step\":7}\n");
  orders[0].respond(R"({"ok":true,"step":8})");
  desk.Turn();
  EXPECT_EQ(desk.answers.size(), 1u) << "only the first answer counts";
}

TEST(Actions, WhatTheRunRefusesIsAConflict) {
  Desk desk;
  desk.Ask(Desk::Right("replace", R"({"rank": 3})"));
  auto orders = desk.actions->TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].request, R"({"command":"replace","rank":3})");
  orders[0].respond(R"({"ok":false,"error":"there is no rank 3"})");
  desk.Turn();
  ASSERT_EQ(desk.answers.size(), 1u);
  EXPECT_EQ(desk.answers[0].status, 409u);
  EXPECT_NE(desk.answers[0].body.find("there is no rank 3"), std::string::npos);
}

TEST(Actions, WithoutTheTokenNothingIsDone) {
  const std::pair<const char*, unsigned> kPresented[] = {{"", 401},
                                                         {"Bearer ", 403},
                                                         {"Bearer", 403},
                                                         {"Bearer 0123456789abcdeX", 403},
                                                         {"Bearer 0123456789abcde", 403},
                                                         {"Bearer 0123456789abcdef0", 403},
                                                         {"Basic 0123456789abcdef", 403},
                                                         {"0123456789abcdef", 403}};
  ActionLimits limits;
  limits.wrong_tokens = 100;
  Desk desk(limits);
  for (const auto& [authorization, status] : kPresented) {
    HttpRequest request = Desk::Right("pause");
    request.authorization = authorization;
    EXPECT_EQ(desk.Ask(request), status) << authorization;
    EXPECT_FALSE(nlohmann::json::parse(desk.answers.back().body).at("error").get<std::string>().empty());
  }
  EXPECT_TRUE(desk.actions->TakeOrders().empty());
  EXPECT_EQ(desk.log->lines.find("0123456789"), std::string::npos) << "neither right nor wrong ones are logged";
  HttpRequest lower_case = Desk::Right("check");
  lower_case.authorization = std::string("bearer ") + kToken;
  EXPECT_EQ(desk.Ask(lower_case), 200u);
}

TEST(Actions, OnlyPostsFromTheOwnPageCount) {
  Desk desk;
  HttpRequest request = Desk::Right("pause");
  request.method = "GET";
  EXPECT_EQ(desk.Ask(request), 405u);
  for (const char* origin :
       {"http://evil.example", "http://127.0.0.1:8081", "null", "https://127.0.0.1:8080.evil.example"}) {
    request = Desk::Right("pause");
    request.origin = origin;
    EXPECT_EQ(desk.Ask(request), 403u) << origin;
  }
  request = Desk::Right("pause");
  request.content_type = "text/plain";  // what a form of another page can send
  EXPECT_EQ(desk.Ask(request), 415u);
  EXPECT_TRUE(desk.actions->TakeOrders().empty());
  request = Desk::Right("pause");
  request.origin = "";  // curl
  EXPECT_EQ(desk.Ask(request), 0u);
  EXPECT_EQ(desk.actions->TakeOrders().size(), 1u);
}

TEST(Actions, BadInputIsToldWhatItLacks) {
  ActionLimits limits;
  limits.orders = 100;
  Desk desk(limits);
  EXPECT_EQ(desk.Ask(Desk::Right("stop")), 404u) << "ending a run is not for the page";
  EXPECT_EQ(desk.Ask(Desk::Right("")), 404u);
  EXPECT_EQ(desk.Ask(Desk::Right("save/../pause")), 404u);
  for (const char* body : {"", "{}", "{", "[2]", "2", R"({"rank": "2"})", R"({"rank": -1})", R"({"rank": 1.5})",
                           R"({"rank": 99999999999})", "\xff\xfe"})
    EXPECT_EQ(desk.Ask(Desk::Right("replace", body)), 400u) << body;
  EXPECT_EQ(desk.Ask(Desk::Right("save", "[]")), 400u);
  EXPECT_TRUE(desk.actions->TakeOrders().empty());
}

TEST(Actions, GuessingIsSlowedDownForEverybody) {
  ActionLimits limits;
  limits.wrong_tokens = 3;
  limits.wrong_token_each = 1h;
  Desk desk(limits);
  HttpRequest wrong = Desk::Right("check");
  wrong.authorization = "Bearer guess";
  for (int guess = 0; guess < 3; ++guess) EXPECT_EQ(desk.Ask(wrong), 403u);
  EXPECT_EQ(desk.Ask(wrong), 429u);
  EXPECT_EQ(desk.Ask(Desk::Right("check")), 429u) << "else a guess that is right could be told from the others";
}

TEST(Actions, OrdersAreBoundedInNumberAndInTime) {
  ActionLimits limits;
  limits.orders = 3;
  limits.order_each = 1h;
  limits.under_way_max = 2;
  limits.answer = 1ms;
  Desk desk(limits);
  EXPECT_EQ(desk.Ask(Desk::Right("pause")), 0u);
  EXPECT_EQ(desk.Ask(Desk::Right("continue")), 0u);
  EXPECT_EQ(desk.Ask(Desk::Right("pause")), 429u) << "two are under way";
  EXPECT_EQ(desk.Ask(Desk::Right("pause")), 429u) << "three were given in this hour";
  desk.io.run();
  ASSERT_EQ(desk.answers.size(), 4u);
  EXPECT_EQ(desk.answers[2].status, 504u);
  EXPECT_EQ(desk.answers[3].status, 504u);
  EXPECT_TRUE(desk.actions->TakeOrders().empty()) << "what was given up is not done later";
}

TEST(Actions, AnAnswerAfterTheEndIsNotHeard) {
  Desk desk;
  desk.Ask(Desk::Right("pause"));
  auto orders = desk.actions->TakeOrders();
  ASSERT_EQ(orders.size(), 1u);
  desk.actions.reset();
  orders[0].respond(R"({"ok":true,"step":1})");
  desk.Turn();
  EXPECT_TRUE(desk.answers.empty());
}

TEST(Allowance, GrowsBackOneByOneUpToItsSize) {
  TimePoint now = TimePoint() + 1h;
  Allowance allowance(2, 10s);
  EXPECT_TRUE(allowance.Take(now));
  EXPECT_TRUE(allowance.Take(now));
  EXPECT_FALSE(allowance.Take(now));
  EXPECT_FALSE(allowance.Take(now + 9s));
  EXPECT_TRUE(allowance.Take(now + 10s));
  EXPECT_FALSE(allowance.Take(now + 19s));
  now = now + 1h;
  EXPECT_TRUE(allowance.Take(now));
  EXPECT_TRUE(allowance.Take(now));
  EXPECT_FALSE(allowance.Take(now)) << "never more than its size";
}

class PageTokenFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/page-token-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Put(const std::string& text, mode_t mode = 0600) {
    const std::string file = folder_ + "/token";
    std::ofstream(file, std::ios::trunc) << text;
    chmod(file.c_str(), mode);
    return file;
  }
  std::string WhyNot(const std::string& file) {
    const Result<PageToken> token = ReadPageToken(file);
    return token.ok() ? "" : token.status().message();
  }
  std::string folder_;
};

TEST_F(PageTokenFile, IsOneLineThatOnlyItsOwnerReads) {
  for (const std::string end : {"", "\n", "\r\n"}) {
    const Result<PageToken> token = ReadPageToken(Put(kToken + end));
    ASSERT_TRUE(token.ok()) << token.status().message();
    EXPECT_TRUE(token->Is(kToken));
    EXPECT_FALSE(token->Is(std::string(kToken) + "\n"));
    EXPECT_FALSE(token->Is(""));
  }
  EXPECT_NE(WhyNot(Put(kToken, 0640)).find("chmod 600"), std::string::npos);
  EXPECT_NE(WhyNot(Put("short")).find("16 to 512"), std::string::npos);
  EXPECT_NE(WhyNot(Put(std::string(513, 'a'))).find("16 to 512"), std::string::npos);
  EXPECT_NE(WhyNot(Put("")).find("16 to 512"), std::string::npos);
  EXPECT_NE(WhyNot(Put("0123456789 abcdef")).find("without spaces"), std::string::npos);
  EXPECT_NE(WhyNot(Put(std::string(kToken) + "\n" + kToken)).find("one line"), std::string::npos);
  EXPECT_NE(WhyNot(folder_ + "/none").find("openssl rand"), std::string::npos);
  EXPECT_NE(WhyNot(folder_).find("not a file"), std::string::npos);
  EXPECT_EQ(WhyNot(Put("secret of mine, but with spaces")).find("secret of mine"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::observe
