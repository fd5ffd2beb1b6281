// Which ranks a launcher starts, and what its word weighs in an election: two nodes that both count for the same ranks
// could both go on.
#include "runtime/launcher/node/local_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Node 1 of two with two ranks each, or the spare node behind them.
class Block : public ::testing::Test, private WorkerEvents {
 protected:
  static NodeLauncherOptions Options(int node_rank) {
    NodeLauncherOptions options;
    options.run.nodes = 2;
    options.run.policy.world_size = 4;
    options.node_rank = node_rank;
    return options;
  }
  // What the leader of `term` says after these moves.
  static core::Placement Moved(uint64_t term, std::vector<std::pair<int, int>> block_to_node,
                               Generation since = Generation()) {
    core::Placement placement;
    placement.Begin(term);
    for (const auto& [block, node] : block_to_node) placement.Move(term, block, node, since);
    return placement;
  }

  void OnStarting(Rank, Incarnation, std::vector<std::string>) override {}
  void OnPage(Rank, Incarnation, const PageView&) override {}
  void OnReport(Rank, const StepReport&) override {}
  void OnFired(const Injection&, TimePoint) override {}
  void OnHeld(Rank, const std::optional<core::HeldState>&) override {}
  void OnExited(Rank, Incarnation, const WorkerEnd&) override {}
  void OnSpares(int) override {}
  void OnIdle() override {}

  static constexpr int kSpare = 2;
  boost::asio::io_context io;
  std::shared_ptr<GenerationLog> log = std::make_shared<GenerationLog>(NullLogSink());
  WorkerPool pool{io, *this, NullLogSink()};
  NodeState node{Options(1), log}, spare{Options(kSpare), log};
  LocalBlock of_node{node, pool}, of_spare{spare, pool};
};

TEST_F(Block, IsANodesOwnUntilItIsMoved) {
  EXPECT_EQ(of_node.number(), 1);
  EXPECT_TRUE(of_node.Has(Rank(2)) && of_node.Has(Rank(3)));
  EXPECT_FALSE(of_node.Has(Rank(1)) || of_node.Has(Rank(4)));
  EXPECT_FALSE(of_spare.has_ranks());
  EXPECT_FALSE(of_spare.Has(Rank(2)));

  const core::Placement moved = Moved(1, {{1, kSpare}});
  of_node.Take(moved);
  of_spare.Take(moved);
  EXPECT_FALSE(of_node.has_ranks());
  EXPECT_EQ(of_spare.number(), 1);
  EXPECT_TRUE(of_spare.Has(Rank(3)));
}

TEST_F(Block, ChangesByTheWordOfALeaderThatKnowsOfTheMove) {
  EXPECT_TRUE(of_node.Learn(Moved(2, {{1, kSpare}}))) << "another node said so";
  EXPECT_TRUE(of_node.has_ranks()) << "what runs here goes on until the leader ends it";
  EXPECT_THAT(of_node.RanksHere().ended, IsEmpty()) << "and counts for nothing meanwhile";
  of_node.Take(Moved(1, {}));
  EXPECT_TRUE(of_node.has_ranks()) << "this one does not know of it";
  of_node.Take(Moved(2, {{1, kSpare}}));
  EXPECT_FALSE(of_node.has_ranks());
}

// The run goes on where they are: what these hold is nothing to save.
TEST_F(Block, OfRanksThatAnotherNodeHasIsNoPartToLead) {
  for (const bool moved : {false, true}) {
    if (moved) {
      EXPECT_TRUE(of_node.Learn(Moved(2, {{1, kSpare}})));
    }
    core::ElectionCore election = node.election;
    const TimePoint lost(std::chrono::seconds(100));
    election.Follow(1);
    election.Lose(lost);
    const auto decision = election.OnTick(lost + election.patience(), of_node.RanksHere());
    EXPECT_EQ(decision.lead.has_value(), !moved);
    EXPECT_EQ(decision.give_up, moved);
  }
}

TEST_F(Block, IsNotChangedByALeaderThatMissedAMove) {
  of_node.Take(Moved(2, {{1, kSpare}}));
  EXPECT_FALSE(of_node.Learn(Moved(1, {})));
  of_node.Take(Moved(1, {}));
  EXPECT_FALSE(of_node.has_ranks()) << "an older word";
  of_node.Take(Moved(3, {}));
  EXPECT_TRUE(of_node.has_ranks()) << "a newer one gives it back";
}

TEST_F(Block, WeighsNothingUntilTheRunHasGoneOnWithIt) {
  EXPECT_THAT(of_node.RanksHere().ended, ElementsAre(Rank(2), Rank(3))) << "no process of it runs here";
  EXPECT_THAT(of_node.RanksHere().live, IsEmpty());
  EXPECT_THAT(of_spare.RanksHere().ended, IsEmpty());

  spare.pulse.generation = Generation(4);
  of_spare.Take(Moved(1, {{1, kSpare}}, Generation(4)));
  EXPECT_THAT(of_spare.RanksHere().ended, IsEmpty()) << "the node before it may count for others";
  spare.pulse.generation = Generation(5);
  EXPECT_THAT(of_spare.RanksHere().ended, ElementsAre(Rank(2), Rank(3)));
}

TEST_F(Block, TakesPartWhereOneOfItsRanksIsOfTheRun) {
  EXPECT_TRUE(of_node.takes_part()) << "nobody said otherwise";
  EXPECT_FALSE(of_spare.takes_part());
  node.pulse.so_far.crew = {Rank(0), Rank(1)};
  EXPECT_FALSE(of_node.takes_part());
  node.pulse.so_far.crew = {Rank(0), Rank(3)};
  EXPECT_TRUE(of_node.takes_part());
}

}  // namespace
}  // namespace kintsugi
