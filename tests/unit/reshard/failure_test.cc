// What breaks during an execution is an error that names its place; nothing hangs, nothing is written where it does not
// belong.
#include <atomic>

#include "tests/unit/reshard/failure_world.h"

namespace kintsugi::reshard {
namespace {

using namespace std::chrono_literals;

// A link that fails after some calls.
class FailingLink final : public Link {
 public:
  FailingLink(std::unique_ptr<Link> link, int calls) : link_(std::move(link)), calls_(calls) {}
  Status Send(const Memory& memory, uint64_t offset, uint64_t size, TimePoint deadline,
              PieceObserver* observer) override {
    if (--calls_ < 0) return {StatusCode::kCommFailure, "the test broke it"};
    return link_->Send(memory, offset, size, deadline, observer);
  }
  Status Receive(void* data, uint64_t size, TimePoint deadline, PieceObserver* observer) override {
    if (--calls_ < 0) return {StatusCode::kCommFailure, "the test broke it"};
    return link_->Receive(data, size, deadline, observer);
  }
  void Abort() override { link_->Abort(); }
  Rank peer() const override { return link_->peer(); }
  std::string_view kind() const override { return link_->kind(); }

 private:
  const std::unique_ptr<Link> link_;
  std::atomic<int> calls_;
};

class Failures : public testing::Test, protected FailureWorld {};

TEST_F(Failures, DoNotHappenByThemselves) {
  for (const Status& status : RunAll()) EXPECT_TRUE(status.ok()) << status.ToString();
  wanted_.ExpectFilled(target_);
}

TEST_F(Failures, OfALinkInTheMiddleEndEveryRank) {
  for (const int calls : {0, 1, 2, 5, 9}) {
    FailureWorld world;
    world.ends_[1][2] = std::make_unique<FailingLink>(std::move(world.ends_[1][2]), calls);
    const auto statuses = world.RunAll();
    for (const Status& status : statuses) EXPECT_FALSE(status.ok());
    EXPECT_EQ(statuses[1].code(), StatusCode::kCommFailure) << statuses[1].ToString();
    for (const char* word : {"'w'", "move ", "rank 2"})
      EXPECT_NE(statuses[1].message().find(word), std::string::npos) << statuses[1].ToString();
    world.ExpectSourcesIntact();
  }
}

TEST_F(Failures, OfAPeerThatIsGoneEndEveryRank) {
  ends_[3].clear();
  const auto statuses = RunAll({3});
  for (int r = 0; r < 3; ++r) EXPECT_EQ(statuses[static_cast<size_t>(r)].code(), StatusCode::kCommFailure);
  ExpectSourcesIntact();
}

TEST_F(Failures, OfASilentPeerEndAtTheDeadlineAndNameIt) {
  options_.deadline = In(2s);
  const auto statuses = RunAll({3});
  for (int r = 0; r < 3; ++r) EXPECT_FALSE(statuses[static_cast<size_t>(r)].ok());
  bool named = false;
  for (const Status& status : statuses)
    named |= status.code() == StatusCode::kDeadlineExceeded && status.message().find("rank 3") != std::string::npos;
  EXPECT_TRUE(named) << statuses[0].ToString();
  ExpectSourcesIntact();
}

TEST_F(Failures, OfACancelledRankEndEveryRank) {
  CancelToken cancel;
  options_.cancel = &cancel;
  std::thread canceller([&] {
    std::this_thread::sleep_for(20ms);
    cancel.Cancel();
  });
  const auto statuses = RunAll({3});  // nobody can finish
  canceller.join();
  for (int r = 0; r < 3; ++r) EXPECT_FALSE(statuses[static_cast<size_t>(r)].ok());
  EXPECT_EQ(RunOne(3, plan_, options_).code(), StatusCode::kCancelled);
}

TEST_F(Failures, OfOneRanksBindingsEndEveryRank) {
  bindings_[2].sources.clear();
  const auto statuses = RunAll();
  EXPECT_EQ(statuses[2].code(), StatusCode::kInvalidArgument) << statuses[2].ToString();
  for (const Status& status : statuses) EXPECT_FALSE(status.ok());
  ExpectSourcesIntact();
}

// Both plans are right, pairs have as many moves and bytes in both, but ranks 0 and 1 send what the other should.
TEST(ExecuteFailures, IncludePeersWithAnotherPlan) {
  plan::Side from, to;
  for (const int32_t rank : {0, 1})
    for (const int64_t row : {0, 32}) {
      ShardedTensor half = plan::Piece("w", {64, 8}, {row, 0}, {32, 8});
      half.replica_id = {rank};
      from.Add(rank, half);
    }
  const Metadata source = from.Build(), target = to.Add(2, plan::Piece("w", {64, 8}, {0, 0}, {64, 8})).Build();
  plan::Plan plan = *MakePlan(source, target);
  ASSERT_EQ(plan.moves.size(), 2u);
  plan.moves[0].from = 0;
  plan.moves[1].from = 1;
  plan::Plan other = plan;
  std::swap(other.moves[0].from, other.moves[1].from);
  WorldMemory held(source), wanted(target);
  std::vector<std::unique_ptr<Link>> ends[3];
  for (const int32_t rank : {0, 1}) {
    auto [sender, receiver] = MakeInProcessLinks(Rank(rank), Rank(2));
    ends[rank].push_back(std::move(sender));
    ends[2].push_back(std::move(receiver));
  }
  std::vector<Status> statuses(3);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<Link*> links;
      for (const auto& link : ends[rank]) links.push_back(link.get());
      const Bindings bindings = BindPlain(source, held, target, wanted, rank);
      statuses[static_cast<size_t>(rank)] =
          Execute(rank == 2 ? other : plan, source, target, rank, bindings, links).status();
      ends[rank].clear();
    });
  for (auto& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_FALSE(status.ok());
  EXPECT_EQ(statuses[2].code(), StatusCode::kFailedPrecondition) << statuses[2].ToString();
  EXPECT_NE(statuses[2].message().find("fingerprint"), std::string::npos) << statuses[2].ToString();
  for (const auto& memory : wanted.pieces.at({2, 0}))
    for (uint64_t i = 0; i < memory->memory().size_bytes; ++i) ASSERT_EQ(memory->data()[i], kUnwritten);
}

TEST_F(Failures, IncludePeersWithAnotherWindow) {
  ExecuteOptions other = options_;
  other.window_bytes *= 2;
  std::vector<Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back(
        [&, rank] { statuses[static_cast<size_t>(rank)] = RunOne(rank, plan_, rank == 2 ? other : options_); });
  for (auto& thread : threads) thread.join();
  bool found = false;
  for (const Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    found |= status.code() == StatusCode::kFailedPrecondition;
  }
  EXPECT_TRUE(found);
  ExpectSourcesIntact();
}

}  // namespace
}  // namespace kintsugi::reshard
