// The nodes' registry: who is here, who has which ranks, what waits.
#include "runtime/launcher/leader/node_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kBegin = TimePoint(1000s);
// Two nodes of two ranks, one controller without ranks at place 2; spare nodes from place 3 on.
constexpr NodeShape kShape{2, 1, 2};
constexpr int kController = 2, kSpare = 3;

wire::NodeHello Hello(const std::string& address = "10.0.0.1", uint16_t port = 7) {
  wire::NodeHello hello;
  hello.address = address;
  hello.port = port;
  return hello;
}

struct Book : ::testing::Test {
  void Come(int node) { registry.OnJoined(node, Hello(), kBegin); }
  NodeRegistry registry{kShape, {}, kBegin};
};

TEST_F(Book, PlacesAreNodesThenControllersThenSpares) {
  EXPECT_TRUE(registry.HasRanks(0));
  EXPECT_TRUE(registry.HasRanks(1));
  EXPECT_FALSE(registry.HasRanks(kController));
  EXPECT_FALSE(registry.IsSpare(kController)) << "a controller never gets ranks";
  EXPECT_TRUE(registry.IsSpare(kSpare));
  EXPECT_EQ(registry.Name(1), "node 1");
  EXPECT_EQ(registry.Name(kSpare), "node 2") << "its --node-rank: controllers are not counted";
  EXPECT_THROW(registry.At(kSpare + core::kSpareNodesMax), CheckFailure);
  EXPECT_THROW(registry.At(-1), CheckFailure);
}

TEST_F(Book, EachHasALabelOfItsOwn) {
  EXPECT_EQ(registry.Label(1), "1");
  EXPECT_EQ(registry.Label(kController), "controller-0");
  EXPECT_EQ(registry.Label(kSpare), "2");
}

TEST_F(Book, WhoWasCutOffOrDrainedGetsNoRanksUntilAnotherLauncherComes) {
  wire::NodeHello hello = Hello();
  hello.launcher = 7;
  registry.OnJoined(kSpare, hello, kBegin);
  ASSERT_EQ(registry.Spares(), std::vector<int>{kSpare});
  registry.At(kSpare).cut_off = true;
  EXPECT_TRUE(registry.Spares().empty());
  registry.OnLost(kSpare, kBegin);
  registry.OnJoined(kSpare, hello, kBegin);
  EXPECT_TRUE(registry.Spares().empty()) << "the same one, over another connection";
  registry.OnLost(kSpare, kBegin);
  hello.launcher = 8;
  registry.OnJoined(kSpare, hello, kBegin);
  EXPECT_EQ(registry.Spares(), std::vector<int>{kSpare});
}

TEST_F(Book, ARankIsOfOneNode) {
  EXPECT_EQ(registry.NodeOf(Rank(3)), 1);
  EXPECT_TRUE(registry.OfNode(Rank(3), 1));
  EXPECT_FALSE(registry.OfNode(Rank(3), 0));
  EXPECT_FALSE(registry.OfNode(Rank(4), 2)) << "there is no rank 4";
  EXPECT_FALSE(registry.OfNode(Rank(-1), 0));
  EXPECT_EQ(registry.RanksOf(1).first, Rank(2));
  EXPECT_EQ(registry.RanksText(1), "2 to 3");
  EXPECT_THROW(registry.RanksOf(kSpare), CheckFailure);
}

TEST_F(Book, TheRunCanBeginOnceEveryNodeWithRanksIsHere) {
  EXPECT_FALSE(registry.AllHere());
  Come(0);
  Come(kSpare);
  EXPECT_FALSE(registry.AllHere());
  Come(1);
  EXPECT_TRUE(registry.AllHere());
  EXPECT_THAT(registry.Away(), ElementsAre(kController)) << "spares that never came are not missed";
  registry.OnLost(kSpare, kBegin);
  EXPECT_THAT(registry.Away(), ElementsAre(kController, kSpare)) << "one that was here is";
}

TEST_F(Book, ANodeComesAndGoesInTurns) {
  EXPECT_THROW(registry.OnLost(0, kBegin), CheckFailure);
  Come(0);
  EXPECT_THROW(Come(0), CheckFailure);
}

TEST_F(Book, AnAbsenceThatWasToldOfHasALength) {
  Come(1);
  registry.OnLost(1, kBegin + 5s);
  EXPECT_FALSE(registry.OnJoined(1, Hello(), kBegin + 6s).away) << "nobody was told of that one";
  registry.OnLost(1, kBegin + 10s);
  registry.At(1).said_away = registry.At(1).said_gone = true;
  const NodeRegistry::Arrival arrival = registry.OnJoined(1, Hello(), kBegin + 12s);
  ASSERT_TRUE(arrival.away);
  EXPECT_EQ(*arrival.away, 2s);
  EXPECT_FALSE(registry.At(1).said_away || registry.At(1).said_gone) << "the next one is told of again";
}

TEST_F(Book, WhoListensElsewhereHasMoved) {
  EXPECT_TRUE(registry.OnJoined(1, Hello("10.0.0.1", 7), kBegin).moved);
  registry.OnLost(1, kBegin);
  EXPECT_FALSE(registry.OnJoined(1, Hello("10.0.0.1", 7), kBegin).moved);
  registry.OnLost(1, kBegin);
  EXPECT_TRUE(registry.OnJoined(1, Hello("10.0.0.1", 8), kBegin).moved);
}

TEST_F(Book, ABlockMovesWithWhatItHas) {
  Come(0);
  Come(kSpare);
  registry.At(1).to_spawn[Rank(2)] = Incarnation(4);
  registry.Move(1, {.block = 1, .from = 1, .to = kSpare}, Generation(9));
  EXPECT_EQ(registry.NodeOf(Rank(2)), kSpare);
  EXPECT_TRUE(registry.IsSpare(1));
  EXPECT_THAT(registry.At(1).to_spawn, IsEmpty()) << "it is not to start what another one has now";
  EXPECT_TRUE(registry.AllHere());
  EXPECT_THAT(registry.Voters(), ElementsAre(0, kController, kSpare));
  EXPECT_THROW(registry.Move(1, {.block = 1, .from = 1, .to = kSpare}, Generation(9)), CheckFailure);
}

TEST_F(Book, ANodeThatIsCutOffIsAwayForTheChoiceOfATakeoverAndNoSpareAfterIt) {
  for (int node : {0, 1, kSpare}) Come(node);
  registry.At(1).cut_off = true;
  const auto hosts = registry.Hosts();
  const auto due = core::NextTakeover(registry.placement(), kShape.nodes, hosts, 60s, kBegin, [](int) { return true; });
  ASSERT_TRUE(due) << "at once, however long a spare node waits for others";
  EXPECT_EQ(due->block, 1);
  EXPECT_EQ(due->to, kSpare);
  registry.Move(1, *due, Generation(9));
  EXPECT_FALSE(registry.SpareHere()) << "it is here, and gets no ranks";
}

TEST_F(Book, OnlyASpareThatIsHereTakesABlock) {
  Come(0);
  EXPECT_THROW(registry.Move(1, {.block = 1, .from = 1, .to = kSpare}, Generation(9)), CheckFailure) << "away";
  EXPECT_THROW(registry.Move(1, {.block = 1, .from = 1, .to = 0}, Generation(9)), CheckFailure) << "it has ranks";
}

}  // namespace
}  // namespace kintsugi
