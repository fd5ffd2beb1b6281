// The rendezvous store as one process sees it: questions that outlive a call, a lost connection, and who is cancelled.
#include "runtime/agent/store_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/core/store_table.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<uint8_t>;

const Generation kFirst(1), kSecond(2);

struct Said {
  Generation generation;
  core::AgentMessage message;
};

class StoreClientTest : public ::testing::Test {
 protected:
  size_t Questions() {
    const MutexLock lock(mutex_);
    size_t questions = 0;
    for (const Said& said : said_) questions += std::holds_alternative<core::StoreGet>(said.message);
    return questions;
  }
  // The newest question's request.
  uint64_t AwaitQuestion(size_t number = 1) {
    for (; Questions() < number; std::this_thread::sleep_for(1ms)) {
    }
    const MutexLock lock(mutex_);
    uint64_t request = 0;
    for (const Said& said : said_)
      if (const auto* get = std::get_if<core::StoreGet>(&said.message)) request = get->request;
    return request;
  }

  Mutex mutex_;
  std::vector<Said> said_ KINTSUGI_GUARDED_BY(mutex_);
  StoreClient client_{[this](Generation generation, core::AgentMessage message) {
    const MutexLock lock(mutex_);
    said_.push_back({generation, std::move(message)});
  }};
};

TimePoint Soon(Duration wait = 60s) { return SteadyClock::SteadyNow() + wait; }

TEST_F(StoreClientTest, AnAnswerWakesWhoAsked) {
  Result<Bytes> got = Bytes();
  std::thread asker([&] { got = client_.Get(kFirst, "address", Soon()); });
  client_.OnAnswered({AwaitQuestion(), StatusCode::kOk, {7, 8}});
  asker.join();
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, (Bytes{7, 8}));
}

TEST_F(StoreClientTest, AQuestionOutlivesTheCallThatPutIt) {
  const Result<Bytes> late = client_.Get(kFirst, "address", Soon(1ms));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.status().message().find("'address'"), std::string::npos);
  client_.OnAnswered({AwaitQuestion(), StatusCode::kOk, {7}});
  EXPECT_TRUE(client_.Get(kFirst, "address", Soon(1ms)).ok());
  EXPECT_EQ(Questions(), 1u) << "it was asked anew";
}

TEST_F(StoreClientTest, WhatWasSaidIsSaidAgainInItsGenerationOnly) {
  ASSERT_TRUE(client_.Set(kFirst, "key", {1}).ok());
  (void)client_.Get(kFirst, "address", Soon(1ms));
  client_.SayAgain(kSecond);
  {
    const MutexLock lock(mutex_);
    EXPECT_EQ(said_.size(), 2u);
  }
  client_.SayAgain(kFirst);
  const MutexLock lock(mutex_);
  ASSERT_EQ(said_.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<core::StoreSet>(said_[2].message));
  EXPECT_TRUE(std::holds_alternative<core::StoreGet>(said_[3].message));
}

TEST_F(StoreClientTest, ANewerGenerationEndsWaitsAndRefusesTheOlder) {
  Result<Bytes> got = Bytes();
  std::thread asker([&] { got = client_.Get(kFirst, "address", Soon()); });
  AwaitQuestion();
  ASSERT_TRUE(client_.Set(kSecond, "key", {1}).ok());
  asker.join();
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client_.Set(kFirst, "key", {1}).code(), StatusCode::kCancelled);
  EXPECT_EQ(client_.Get(kFirst, "key", Soon()).status().code(), StatusCode::kCancelled);
}

TEST_F(StoreClientTest, AnIncidentAndTheEndOfTheRunEndWaits) {
  Result<Bytes> got = Bytes();
  std::thread asker([&] { got = client_.Get(kFirst, "address", Soon()); });
  AwaitQuestion();
  client_.CancelWaits();
  asker.join();
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  std::thread again([&] { got = client_.Get(kFirst, "other", Soon()); });
  AwaitQuestion(2);
  client_.End();
  again.join();
  EXPECT_EQ(got.status().code(), StatusCode::kCancelled);
  EXPECT_NE(client_.Set(kFirst, "key", {1}).message().find("the run has ended"), std::string::npos);
}

TEST_F(StoreClientTest, WhatIsTooLargeIsRefusedByNameAndLimit) {
  const Status refused = client_.Set(kFirst, "key", Bytes(core::StoreTable::kValueBytesMax + 1));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("'key'"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi
