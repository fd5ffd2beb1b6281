#include "callbacks/handlers/cancel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace kintsugi {
namespace {

TEST(CancelToken, RunsEachCallbackOnceHoweverOftenItIsCancelled) {
  CancelToken token;
  int first = 0, second = 0;
  CancelToken::Subscription a(token, [&] { ++first; });
  CancelToken::Subscription b(token, [&] { ++second; });
  EXPECT_FALSE(token.cancelled());
  token.Cancel();
  token.Cancel();
  EXPECT_TRUE(token.cancelled());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST(CancelToken, RunsALateCallbackAtOnce) {
  CancelToken token;
  token.Cancel();
  int calls = 0;
  {
    CancelToken::Subscription late(token, [&] { ++calls; });
    EXPECT_EQ(calls, 1);
  }
  token.Cancel();
  EXPECT_EQ(calls, 1);
}

TEST(CancelToken, LeavesAnEndedSubscriptionAlone) {
  CancelToken token;
  int calls = 0;
  {
    CancelToken::Subscription gone(token, [&] { ++calls; });
  }
  token.Cancel();
  EXPECT_EQ(calls, 0);
}

TEST(CancelToken, RunsTheOthersWhenOneCallbackThrowsOrIsEmpty) {
  CancelToken token;
  int calls = 0;
  CancelToken::Subscription throws(token, [] { throw std::runtime_error("no"); });
  CancelToken::Subscription empty(token, nullptr);
  CancelToken::Subscription works(token, [&] { ++calls; });
  token.Cancel();
  EXPECT_EQ(calls, 1);
}

// The promise that lets a callback use its owner's memory: after the subscription's end it neither runs nor is running.
TEST(CancelToken, NeverRunsACallbackAfterItsSubscriptionEnded) {
  for (int round = 0; round < 300; ++round) {
    CancelToken token;
    auto memory = std::make_unique<int>(0);
    std::atomic<bool> go{false};
    auto subscription = std::make_optional<CancelToken::Subscription>(token, [p = memory.get()] { ++*p; });
    std::thread canceller([&] {
      while (!go.load()) {
      }
      token.Cancel();
    });
    go.store(true);
    subscription.reset();
    EXPECT_LE(*memory, 1);
    memory.reset();
    canceller.join();
  }
}

TEST(CancelToken, TellsEverySubscriberExactlyOnceUnderContention) {
  for (int round = 0; round < 50; ++round) {
    CancelToken token;
    constexpr int kThreads = 4, kEach = 8;
    std::vector<std::thread> threads;
    std::atomic<int> calls{0};
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          std::atomic<int> mine{0};
          CancelToken::Subscription subscription(token, [&] {
            ++mine;
            ++calls;
          });
          while (!token.cancelled()) std::this_thread::yield();
          // A second canceller returns only when every callback has run.
          token.Cancel();
          EXPECT_EQ(mine.load(), 1);
        }
      });
    threads.emplace_back([&] { token.Cancel(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(calls.load(), kThreads * kEach);
  }
}

}  // namespace
}  // namespace kintsugi
