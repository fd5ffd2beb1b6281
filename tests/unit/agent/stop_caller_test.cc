// The thread that calls the stop handler: one call at a time, one more for whatever was asked meanwhile, and none once it
// is closed.
#include "runtime/agent/stop_caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;

// A handler that returns when it is told to.
class StopCalls : public ::testing::Test {
 protected:
  void Make() {
    caller.emplace(
        [this](CancelToken& cancel) {
          MutexLock lock(mutex_);
          ++begun_;
          changed_.NotifyAll();
          changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return may_return_ >= begun_ || cancel.cancelled(); });
          was_cancelled_ = cancel.cancelled();
          ++done_;
        },
        [this](uint64_t request) {
          const MutexLock lock(mutex_);
          returned_.push_back(request);
          changed_.NotifyAll();
        });
  }
  void AwaitBegun(int calls) {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return begun_ >= calls; });
  }
  void AwaitReturned(size_t calls) {
    MutexLock lock(mutex_);
    changed_.Wait(lock, [&]() KINTSUGI_REQUIRES(mutex_) { return returned_.size() >= calls; });
  }
  void Let(int calls) {
    const MutexLock lock(mutex_);
    may_return_ = calls;
    changed_.NotifyAll();
  }
  std::vector<uint64_t> returned() {
    const MutexLock lock(mutex_);
    return returned_;
  }
  int begun() {
    const MutexLock lock(mutex_);
    return begun_;
  }

  Mutex mutex_;
  CondVar changed_;
  int begun_ KINTSUGI_GUARDED_BY(mutex_) = 0, done_ KINTSUGI_GUARDED_BY(mutex_) = 0,
             may_return_ KINTSUGI_GUARDED_BY(mutex_) = 0;
  bool was_cancelled_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> returned_ KINTSUGI_GUARDED_BY(mutex_);
  std::optional<StopCaller> caller;
};

TEST_F(StopCalls, AreMadeOncePerRequest) {
  Make();
  Let(100);
  EXPECT_EQ(caller->Request(), 1u);
  AwaitReturned(1);
  EXPECT_EQ(caller->Request(), 2u);
  AwaitReturned(2);
  EXPECT_THAT(returned(), ElementsAre(1u, 2u));
}

TEST_F(StopCalls, AnswerAllThatWasAskedMeanwhileWithOneMore) {
  Make();
  (void)caller->Request();
  AwaitBegun(1);
  for (int i = 0; i < 3; ++i) (void)caller->Request();
  Let(100);
  AwaitReturned(2);
  caller->AwaitIdle();
  EXPECT_THAT(returned(), ElementsAre(1u, 4u)) << "what it is to free may have been entered again meanwhile";
}

TEST_F(StopCalls, AreTheOnesThatRunOutOfTime) {
  Make();
  caller->Cancel();
  (void)caller->Request();
  AwaitBegun(1);
  caller->Cancel();
  {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }
  AwaitReturned(1);
  const MutexLock lock(mutex_);
  EXPECT_TRUE(was_cancelled_);
}

TEST_F(StopCalls, AreToldAsTheyBeginWhereTheirTimeIsOverAlready) {
  Make();
  (void)caller->Request();
  AwaitBegun(1);
  (void)caller->Request();
  caller->Cancel();
  Let(1);
  AwaitBegun(2);
  Let(100);
  AwaitReturned(2);
  {
    const MutexLock lock(mutex_);
    EXPECT_TRUE(was_cancelled_) << "on a busy machine the thread may come to it late";
  }
  (void)caller->Request();
  AwaitReturned(3);
  const MutexLock lock(mutex_);
  EXPECT_FALSE(was_cancelled_) << "a newer request has its own time";
}

TEST_F(StopCalls, AreOverWhereNothingIsDue) {
  Make();
  caller->AwaitIdle();
  (void)caller->Request();
  AwaitBegun(1);
  std::promise<void> about_to;
  int done_by_then = 0;
  std::thread thread([&] {
    about_to.set_value();
    caller->AwaitIdle();
    const MutexLock lock(mutex_);
    done_by_then = done_;
  });
  about_to.get_future().wait();
  std::this_thread::yield();
  Let(100);
  thread.join();
  EXPECT_EQ(done_by_then, 1) << "a call ran";
}

TEST_F(StopCalls, AreDroppedThatHaveNotBegunWhenItIsClosed) {
  Make();
  (void)caller->Request();
  AwaitBegun(1);
  std::thread closes([&] { caller->Close(); });
  const auto is_open = [&] {
    try {
      return caller->Request() > 0;
    } catch (const CheckFailure&) {
      return false;
    }
  };
  while (is_open()) std::this_thread::yield();
  Let(100);
  closes.join();
  EXPECT_EQ(begun(), 1);
  caller->AwaitIdle();
  caller->Close();
  EXPECT_EQ(begun(), 1);
}

TEST_F(StopCalls, RunWhereTheHostsSignalsDoNotCome) {
  sigset_t blocked;
  std::promise<void> seen;
  StopCaller own(
      [&](CancelToken&) {
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        seen.set_value();
      },
      [](uint64_t) {});
  (void)own.Request();
  seen.get_future().wait();
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) EXPECT_TRUE(sigismember(&blocked, number));
}

}  // namespace
}  // namespace kintsugi
