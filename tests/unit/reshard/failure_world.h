// Four ranks whose execution tests make fail.
#pragma once

#include <set>
#include <thread>

#include "replica/stream/in_process_link.h"
#include "tests/support/memory_store.h"
#include "tests/unit/plan/worlds.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::reshard {

// Rows on four ranks to columns on four ranks: every pair has moves, many messages each.
struct FailureWorld {
  static constexpr int32_t kRanks = 4;
  static constexpr int64_t kWindow = 8192;

  FailureWorld()
      : source_(plan::Grid("w", {64, 512}, {4, 1})),
        target_(plan::Grid("w", {64, 512}, {1, 4})),
        plan_(*MakePlan(source_, target_)),
        held_(source_),
        wanted_(target_),
        bindings_(BindAll(source_, held_, target_, wanted_, kRanks)),
        ends_(kRanks) {
    held_.Fill(source_);
    options_.window_bytes = kWindow;
    options_.deadline = In(std::chrono::seconds(600));
    for (int32_t a = 0; a < kRanks; ++a)
      for (int32_t b = a + 1; b < kRanks; ++b) {
        auto [end_a, end_b] = MakeInProcessLinks(Rank(a), Rank(b));
        ends_[static_cast<size_t>(a)][b] = std::move(end_a);
        ends_[static_cast<size_t>(b)][a] = std::move(end_b);
      }
  }

  // Every rank but those left out; its links go when it returns.
  std::vector<Status> RunAll(const std::set<int32_t>& without = {}) {
    std::vector<Status> statuses(kRanks);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank)
      if (!without.count(rank))
        threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = RunOne(rank, plan_, options_); });
    for (auto& thread : threads) thread.join();
    return statuses;
  }

  Status RunOne(int32_t rank, const plan::Plan& plan, const ExecuteOptions& options) {
    const auto r = static_cast<size_t>(rank);
    std::vector<Link*> links;
    for (const auto& [peer, link] : ends_[r]) links.push_back(link.get());
    const Status status = Execute(plan, source_, target_, rank, bindings_[r], links, options).status();
    ends_[r].clear();
    return status;
  }

  void ExpectNothingWritten() {
    for (auto& [place, memories] : wanted_.pieces)
      for (auto& memory : memories)
        for (uint64_t i = 0; i < memory->memory().size_bytes; ++i) ASSERT_EQ(memory->data()[i], kUnwritten);
    wanted_.ExpectGuards();
  }
  void ExpectSourcesIntact() {
    held_.ExpectFilled(source_);
    wanted_.ExpectGuards();
  }
  // Rank 0 refuses before anything moves, and says why.
  void ExpectRefused(const std::string& word, const plan::Plan& plan) {
    // The others are not there: what is not refused ends at the deadline instead.
    options_.deadline = In(std::chrono::seconds(20));
    const Status status = RunOne(0, plan, options_);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(word), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.ToString();
    ExpectNothingWritten();
  }
  Destination& FirstDestination() { return bindings_[0].targets.begin()->second.copies[0][0]; }

  const Metadata source_, target_;
  const plan::Plan plan_;
  WorldMemory held_, wanted_;
  std::vector<Bindings> bindings_;
  std::vector<std::map<int32_t, std::unique_ptr<Link>>> ends_;
  ExecuteOptions options_;
};

}  // namespace kintsugi::reshard
