// What ranks tell of a refused step comes to all of them, and how often the store is asked for that.
#include "runtime/agent/step_news.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/core/store_table.h"

namespace kintsugi {
namespace {

// The controller's table, and who waits for its answers.
class CountingStore {
 public:
  CountingStore() { (void)table_.Advance(Generation(1)); }

  Status Set(Rank rank, const std::string& key, const std::vector<uint8_t>& value) {
    const MutexLock lock(mutex_);
    ++messages_;
    Take(table_.Set(From(rank), {key, value}));
    return Status::Ok();
  }
  Result<std::vector<uint8_t>> Get(Rank rank, const std::string& key, TimePoint deadline) {
    MutexLock lock(mutex_);
    ++messages_;
    const uint64_t request = ++requests_;
    Take(table_.Get(From(rank), {request, key}));
    const auto there = [&]() KINTSUGI_REQUIRES(mutex_) { return answers_.count(request) > 0; };
    if (!changed_.WaitUntil(lock, std::chrono::steady_clock::time_point(deadline.since_epoch()), there))
      return Status(StatusCode::kDeadlineExceeded, key);
    return answers_[request];
  }
  uint64_t messages() {
    const MutexLock lock(mutex_);
    return messages_;
  }

 private:
  static core::Header From(Rank rank) {
    return {.term = Term(1), .generation = Generation(1), .rank = rank, .incarnation = Incarnation(1)};
  }
  void Take(const std::vector<core::StoreTable::Answer>& answers) KINTSUGI_REQUIRES(mutex_) {
    for (const auto& answer : answers) answers_[answer.reply.request] = answer.reply.value;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  core::StoreTable table_ KINTSUGI_GUARDED_BY(mutex_);
  std::map<uint64_t, std::vector<uint8_t>> answers_ KINTSUGI_GUARDED_BY(mutex_);
  uint64_t requests_ KINTSUGI_GUARDED_BY(mutex_) = 0, messages_ KINTSUGI_GUARDED_BY(mutex_) = 0;
};

class StoreOfRank final : public Store {
 public:
  StoreOfRank(CountingStore& all, Rank rank) : all_(all), rank_(rank) {}
  Status Set(const std::string& key, const std::vector<uint8_t>& value) override { return all_.Set(rank_, key, value); }
  Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) override {
    return all_.Get(rank_, key, deadline);
  }

 private:
  CountingStore& all_;
  const Rank rank_;
};

struct Heard {
  std::vector<core::StepNews> by_rank;
  uint64_t messages = 0;
};

// One incident of so many ranks: all have told before any hears, as REBUILD ends before ROLLBACK begins.
Heard Exchange(int ranks, core::StepFacts (*facts_of)(int rank)) {
  CountingStore store;
  std::vector<StoreOfRank> stores;
  std::vector<HandlerContext> calls(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) stores.emplace_back(store, Rank(i));
  Heard heard;
  heard.by_rank.resize(calls.size());
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    const size_t at = static_cast<size_t>(i);
    calls[at].rank = Rank(i);
    calls[at].world_size = ranks;
    calls[at].store = &stores[at];
    calls[at].deadline = SteadyClock::SteadyNow() + std::chrono::minutes(1);
    EXPECT_TRUE(TellStep(calls[at], facts_of(i)).ok());
  }
  for (size_t at = 0; at < calls.size(); ++at)
    threads.emplace_back([&, at] {
      auto news = HearStep(calls[at]);
      ASSERT_TRUE(news.ok()) << news.status().ToString();
      heard.by_rank[at] = *std::move(news);
    });
  for (std::thread& thread : threads) thread.join();
  heard.messages = store.messages();
  return heard;
}

TEST(StepNews, IsOneQuestionOfEachRankWhereNobodyTellsAnything) {
  const Heard heard = Exchange(64, [](int) { return core::StepFacts(); });
  EXPECT_EQ(heard.messages, 64u);
  for (const core::StepNews& news : heard.by_rank) EXPECT_FALSE(core::Judge(news));
}

TEST(StepNews, OfOneRankComesToAll) {
  const Heard heard = Exchange(64, [](int rank) {
    core::StepFacts facts;
    if (rank == 5) facts = {"nan \xff", true, 3, true, 2, {{4, "it was bad"}, {9, ""}}, {2, 4}};
    return facts;
  });
  for (const core::StepNews& news : heard.by_rank) {
    EXPECT_EQ(news.why.substr(0, 11), "rank 5: nan");
    EXPECT_EQ(news.refusing, 1u);
    EXPECT_TRUE(news.doubts);
    EXPECT_EQ(news.times, 3u);
    EXPECT_EQ(news.compared, 1u);
    EXPECT_EQ(news.differ, std::vector<Rank>{Rank(5)});
    EXPECT_EQ(news.back, 2u);
    EXPECT_EQ(news.left_out, (std::map<uint64_t, std::string>{{4, "it was bad"}, {9, ""}}));
    EXPECT_EQ(news.all_left_out, (std::set<uint64_t>{2, 4}));
  }
  EXPECT_LE(heard.messages, 4u * 64);
}

TEST(StepNews, GrowsWithTheRanksAndNotWithTheirSquareWhereAllRefuse) {
  const auto refused = [](int rank) {
    return core::StepFacts{.why = "loss is nan in batch " + std::to_string(rank), .times = 1, .differs = rank == 3};
  };
  for (const int ranks : {4, 64}) {
    const Heard heard = Exchange(ranks, refused);
    EXPECT_LE(heard.messages, 7u * static_cast<uint64_t>(ranks));
    for (const core::StepNews& news : heard.by_rank) {
      const auto verdict = core::Judge(news);
      ASSERT_TRUE(verdict);
      EXPECT_EQ(verdict->to_blame, std::vector<Rank>{Rank(3)});
      EXPECT_EQ(verdict->why, core::Judge(heard.by_rank[0])->why);
    }
  }
}

}  // namespace
}  // namespace kintsugi
