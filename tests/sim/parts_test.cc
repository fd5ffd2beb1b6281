// Parts of the simulator on their own: each on a world of its own, with the parts above it replaced by a record of what
// they were told.
#include <gtest/gtest.h>

#include <type_traits>

#include "runtime/sim/collectives.h"
#include "runtime/sim/election_checker.h"
#include "runtime/sim/network.h"
#include "runtime/sim/spares.h"
#include "runtime/sim/state_checker.h"
#include "runtime/sim/table_checker.h"

namespace kintsugi::sim {
namespace {

using namespace std::chrono_literals;

// What a const World leads to is const: this is all that a checker has.
using ReadOnly = const World&;
static_assert(std::is_same_v<decltype(std::declval<ReadOnly>().seat()), const Seat&>);
static_assert(std::is_same_v<decltype(std::declval<ReadOnly>().core()), const ControllerCore&>);
static_assert(std::is_same_v<decltype(std::declval<ReadOnly>().processes.Newest(Rank())), const Process*>);
static_assert(std::is_same_v<decltype(std::declval<ReadOnly>().processes.NewestOn(0, Rank())), const Process*>);
static_assert(std::is_same_v<decltype(*std::declval<ReadOnly>().processes.newest().begin()), const Process* const&>);
static_assert(std::is_same_v<decltype(*std::declval<ReadOnly>().processes.all().begin()), const Process&>);
static_assert(std::is_same_v<decltype(std::declval<const Process&>().core.operator->()), const AgentCore*>);
static_assert(std::is_same_v<decltype(*std::declval<ReadOnly>().seats.all().begin()), const Seat&>);

Plan SomePlan() {
  Plan plan = DrawPlan(1, FindProfile("quick").value(), 0);
  plan.faults.clear();
  return plan;
}

// A world with one living process of each rank, and nobody to move it.
struct Ground {
  explicit Ground(Plan plan = SomePlan()) : world(std::move(plan), nullptr, nullptr) {
    for (int r = 0; r < world.plan.policy.world_size; ++r) {
      Process& p = world.processes.Add(Rank(r), Incarnation(1), world.plan.NodeOf(r));
      p.cut = &world.cuts.whole();
      p.memory.state = InitialState(*p.cut, p.rank);
      p.memory.objects.Put(0, p.memory.state.object);
    }
  }
  Process* Of(int rank) { return world.processes.Newest(Rank(rank)); }
  void RunFor(Duration d) {
    bool over = false;
    world.In(d, [&over] { over = true; });
    while (!over) world.scheduler.RunNext();
  }
  // The promises that were broken.
  std::vector<Promise> Broken() const {
    std::vector<Promise> broken;
    for (const Violation& violation : world.violations.all()) broken.push_back(violation.promise);
    return broken;
  }

  World world;
};

// ---- network -------------------------------------------------------------------------------------------------------

struct Ends final : AgentEnds, ControllerEnds, Relays {
  void OnFrame(Process*, const std::string& bytes) override { down.push_back(bytes); }
  void OnFrame(Connection*, const std::string& bytes) override { up.push_back(bytes); }
  void OnLost(Connection* connection) override {
    connection->process->connection = nullptr;
    ++lost_here;
  }
  void OnLost(Connection* connection, bool) override {
    connection->controller_open = false;
    ++lost_there;
  }
  bool Relay(Connection*, bool, const std::string&) override { return false; }
  bool RelayLoss(Connection*, bool) override { return false; }

  std::vector<std::string> up, down;
  int lost_here = 0, lost_there = 0;
};

struct NetworkTest : testing::Test {
  NetworkTest() : network(ground.world, ends, ends, ends) {
    ground.Of(0)->connection = network.Open(ground.Of(0), nullptr);
  }

  Ground ground;
  Ends ends;
  Network network;
};

TEST_F(NetworkTest, AConnectionKeepsItsOrderInBothDirections) {
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.push_back("frame " + std::to_string(i));
    network.Put(ground.Of(0)->connection, true, sent.back());
    network.Put(ground.Of(0)->connection, false, sent.back());
  }
  ground.RunFor(1s);
  EXPECT_EQ(ends.up, sent);
  EXPECT_EQ(ends.down, sent);
}

TEST_F(NetworkTest, ACutHoldsWhatArrivesAndLetsItThroughInOrderWhenItHeals) {
  network.Cut(Rank(0), true, false, 500ms);
  network.Put(ground.Of(0)->connection, true, "first");
  network.Put(ground.Of(0)->connection, true, "second");
  network.Put(ground.Of(0)->connection, false, "the other way");
  ground.RunFor(400ms);
  EXPECT_FALSE(network.IsWhole(Rank(0)));
  EXPECT_TRUE(ends.up.empty());
  EXPECT_EQ(ends.down, std::vector<std::string>{"the other way"});
  ground.RunFor(200ms);
  EXPECT_TRUE(network.IsWhole(Rank(0)));
  EXPECT_EQ(ends.up, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(ends.lost_here + ends.lost_there, 0);
}

TEST_F(NetworkTest, KeepaliveEndsAConnectionThatStaysCutAtEachEnd) {
  network.Cut(Rank(0), false, true, 30s);
  ground.RunFor(1900ms);
  EXPECT_EQ(ends.lost_here + ends.lost_there, 0);
  ground.RunFor(2200ms);
  EXPECT_EQ(ends.lost_here, 1);
  EXPECT_EQ(ends.lost_there, 1);
}

TEST_F(NetworkTest, ASenderWhoseQueueIsFullLosesTheConnection) {
  network.Cut(Rank(0), true, true, 1s);
  for (int i = 0; i < 1025; ++i) network.Put(ground.Of(0)->connection, true, "x");
  EXPECT_EQ(ends.lost_here, 0);
  network.Put(ground.Of(0)->connection, true, "x");
  EXPECT_EQ(ends.lost_here, 1);
}

// ---- collectives ---------------------------------------------------------------------------------------------------

struct Record final : Meeters {
  void OnMet(Process* p, uint64_t sum, bool) override { met[p->rank] = sum; }
  void OnBroken(Process* p) override { broken.insert(p->rank); }

  std::map<Rank, uint64_t> met;
  std::set<Rank> broken;
};

struct CollectivesTest : testing::Test {
  CollectivesTest() : collectives(ground.world, record) {}
  void Enter(int rank) {
    ground.Of(rank)->group = Generation(1);
    collectives.Enter(ground.Of(rank), Meeting::kGradients, 1, static_cast<uint64_t>(rank) + 1);
  }

  Ground ground;
  Record record;
  Collectives collectives;
};

TEST_F(CollectivesTest, NobodyLeavesBeforeAllHaveEntered) {
  const int ranks = static_cast<int>(ground.world.size);
  for (int r = 1; r < ranks; ++r) Enter(r);
  ground.RunFor(1s);
  EXPECT_TRUE(record.met.empty());
  Enter(0);
  ground.RunFor(1s);
  ASSERT_EQ(record.met.size(), ground.world.size);
  for (const auto& [rank, sum] : record.met) EXPECT_EQ(sum, static_cast<uint64_t>(ranks * (ranks + 1) / 2));
  EXPECT_TRUE(record.broken.empty());
}

TEST_F(CollectivesTest, AGroupThatBreaksFailsWhoIsInsideAndWhoComesLater) {
  Enter(1);
  collectives.BreakGroup(Generation(1));
  Enter(0);
  ground.RunFor(1s);
  EXPECT_TRUE(record.met.empty());
  EXPECT_EQ(record.broken, (std::set<Rank>{Rank(0), Rank(1)}));
}

// ---- spares --------------------------------------------------------------------------------------------------------

TEST(Spares, TheOneThatIsTakenIsReplacedAndTheControllerIsTold) {
  struct Inbox final : ControllerInbox {
    void Feed(ControllerEvent event) override { told.push_back(std::get<core::SparesWaiting>(event).waiting); }
    std::vector<int> told;
  } inbox;
  Plan plan = SomePlan();
  plan.nodes = 1;
  plan.spares = 1;
  Ground ground(plan);
  Spares spares(ground.world, inbox);
  EXPECT_FALSE(spares.Take(Rank(0))) << "none waits before the run runs";
  spares.Begin();
  ground.RunFor(1s);
  EXPECT_EQ(inbox.told, std::vector<int>{1});
  spares.Take(Rank(0));
  EXPECT_FALSE(spares.Take(Rank(0))) << "there was one";
  ground.RunFor(1s);
  EXPECT_EQ(inbox.told, (std::vector<int>{1, 0, 1}));
}

// ---- checkers ------------------------------------------------------------------------------------------------------

TEST(StateChecker, TellsWhatDiffersFromTheUndisturbedRun) {
  const auto broken_by = [](auto change) {
    Ground ground;
    Violations sink(ground.world.log);
    change(*ground.Of(0));
    StateChecker(ground.world, sink).CheckState(*ground.Of(0), 0, "here", Promise::kSameStep);
    return sink.none() ? std::optional<Promise>() : sink.all().front().promise;
  };
  EXPECT_EQ(broken_by([](Process&) {}), std::nullopt);
  EXPECT_EQ(broken_by([](Process& p) { p.memory.state.shards[0].tensors[1].value ^= 1; }), Promise::kSameStep);
  EXPECT_EQ(broken_by([](Process& p) { ++p.memory.state.shards[0].tensors[1].updates; }), Promise::kUpdateOnce);
  EXPECT_EQ(broken_by([](Process& p) { p.memory.objects.Clear(); }), Promise::kSameStep);
  EXPECT_EQ(broken_by([](Process& p) {
              Object drawn = p.memory.state.object;
              ++drawn.position;
              p.memory.objects.Put(0, drawn);
            }),
            Promise::kSamplesOnce);
}

TEST(ElectionChecker, ALauncherPromisesATermOnceAndATermHasOneLeader) {
  Plan plan = SomePlan();
  plan.nodes = 2;
  plan.elections = true;
  Ground ground(plan);
  ElectionChecker checker(ground.world, ground.world.violations);
  checker.CheckPromise(0, 1, 2);
  checker.CheckPromise(1, 1, 2);
  checker.CheckLead(1, {.term = 2, .majority = true});
  EXPECT_TRUE(ground.world.violations.none());
  checker.CheckPromise(0, 0, 2);
  EXPECT_EQ(ground.Broken(), std::vector<Promise>{Promise::kOneDecider});
  checker.CheckLead(0, {.term = 2, .majority = true});
  ASSERT_EQ(ground.world.violations.all().size(), 2u);
  EXPECT_EQ(ground.world.violations.all().back().text, "term 2 is led by node 0 and node 1");
}

TEST(ElectionChecker, WhoLeadsHasMoreThanHalfOfTheRanksOrTheLowerHalf) {
  Plan plan = SomePlan();
  plan.nodes = 2;
  plan.elections = true;
  for (const int voter : {0, 1}) {
    Ground ground(plan);
    ElectionChecker checker(ground.world, ground.world.violations);
    checker.CheckPromise(voter, voter, 2);
    checker.CheckLead(voter, {.term = 2, .majority = true});
    EXPECT_EQ(ground.world.violations.none(), voter == 0) << "node " << voter;
  }
}

TEST(TableChecker, KeepsARecordOfEachController) {
  Ground ground;
  TableChecker checker(ground.world, ground.world.violations);
  Seat& first = ground.world.seat();
  checker.CheckTransition({Phase::kAdmit, Phase::kRebuild, 0, 0, Generation(1), "all are there"});
  Seat& second = ground.world.seats.Add();
  second.Begin(ground.world.plan.policy, Term{2, 2});
  ground.world.seats.Sit(second);
  checker.BeginTakeover(std::nullopt);
  EXPECT_EQ(checker.phase(), Phase::kConfirm);
  ground.world.seats.Sit(first);
  EXPECT_EQ(checker.phase(), Phase::kRebuild);
  EXPECT_TRUE(ground.world.violations.none());
  checker.CheckTransition({Phase::kRebuild, Phase::kRunning, 0, 0, Generation(1), "too soon"});
  EXPECT_EQ(ground.Broken(), std::vector<Promise>{Promise::kTable});
}

}  // namespace
}  // namespace kintsugi::sim
