// A witness decides even splits: never both sides, never on a lease that may have run out.
#include "runtime/core/witness.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>

#include "runtime/core/election.h"
#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

constexpr Ballot U = Ballot::kUnknown, E = Ballot::kEnded, L = Ballot::kLive;
constexpr TieRule kRules[] = {TieRule::kLowestRank, TieRule::kNobody, TieRule::kWitness};

// ---- consent -------------------------------------------------------------------------------------------------------

TEST(WitnessConsent, IsAskedForExactlyWhereHalfOfThoseThatMayLiveAnswer) {
  EXPECT_EQ(ConsentOf({L, L, U, U}, TieRule::kWitness), Consent::kAskWitness);
  EXPECT_EQ(ConsentOf({U, U, L, L}, TieRule::kWitness), Consent::kAskWitness);
  EXPECT_EQ(ConsentOf({L, U, E, E}, TieRule::kWitness), Consent::kAskWitness);
  EXPECT_EQ(ConsentOf({L, L, L, U}, TieRule::kWitness), Consent::kYes);  // a majority asks nobody
  EXPECT_EQ(ConsentOf({L, U, U, U}, TieRule::kWitness), Consent::kNo);  // the others may be one, and act without asking
  EXPECT_EQ(ConsentOf({E, E}, TieRule::kWitness), Consent::kYes);
  EXPECT_EQ(ConsentOf({L, L, U, U}, TieRule::kNobody), Consent::kNo);
}

// Both sides of every split of up to six ranks (as in consent_test.cc), under every two rules, with the lease in every
// place it can be.
TEST(WitnessConsent, TwoSidesNeverBothAct) {
  int both_where_rules_clash = 0, by_lease = 0;
  for (int n = 1; n <= 6; ++n) {
    int cases = 1;
    for (int i = 0; i < n; ++i) cases *= 7;
    for (int c = 0; c < cases; ++c) {
      std::vector<Ballot> a(static_cast<size_t>(n), U), b = a;
      bool lives = false;
      for (int rest = c, r = 0; r < n; ++r, rest /= 7) {
        const auto i = static_cast<size_t>(r);
        const int kind = rest % 7;
        if (kind == 0) a[i] = L;
        if (kind == 1) b[i] = L;
        if (kind == 2 || kind == 4) a[i] = E;
        if (kind == 3 || kind == 4) b[i] = E;
        lives = lives || kind < 2 || kind == 6;
      }
      for (TieRule rule_a : kRules)
        for (TieRule rule_b : kRules)
          for (int holder = 0; holder < 3; ++holder) {  // a, b, nobody
            const auto acts = [&](const std::vector<Ballot>& votes, TieRule rule, bool holds) {
              const Consent consent = ConsentOf(votes, rule);
              by_lease += consent == Consent::kAskWitness && holds;
              return consent == Consent::kYes || (consent == Consent::kAskWitness && holds);
            };
            const bool both = lives && acts(a, rule_a, holder == 0) && acts(b, rule_b, holder == 1);
            const bool clash = rule_a != rule_b && rule_a != TieRule::kNobody && rule_b != TieRule::kNobody;
            both_where_rules_clash += both && clash;
            ASSERT_FALSE(both && !clash) << "case " << c << " of " << n << " ranks, rules " << TieRuleName(rule_a)
                                         << " and " << TieRuleName(rule_b);
          }
    }
  }
  EXPECT_GT(by_lease, 0);
  EXPECT_GT(both_where_rules_clash, 0);  // what the agreement is for
}

TEST(WitnessConsent, AWordEndsBeforeTheLeaseCan) {
  const TimePoint asked(100s);
  EXPECT_LT(WordUntil(asked, 5s), asked + 5s);
  EXPECT_GT(WordUntil(asked, 5s), asked);
}

// ---- the agreement -------------------------------------------------------------------------------------------------

// Every order of everything that can happen to a few nodes and up to two leaders: orders and answers are late or lost
// with their connection, a node is elected while another leads on, launchers start anew and have forgotten everything.
struct World {
  struct Node {
    Term term;
    uint64_t order = 0;
    TieRule rule = TieRule::kNobody;
    int follows = -1;  // index of a leader
  };
  struct Link {
    std::deque<TieOrder> down;
    std::deque<uint64_t> up;
  };
  struct Leader {
    Term term;
    int node;
    TieAgreement agreement;
    std::map<int, uint64_t> taken;  // as the agreement knows it
    std::map<int, Link> links;
    bool alive = true;
  };
  std::vector<Node> nodes;
  std::vector<Leader> leaders;

  std::string Key() const {
    std::string key;
    const auto put = [&key](uint64_t value) { key.push_back(static_cast<char>(value)); };
    for (const Node& n : nodes) {
      put(n.term.number), put(n.term.controller_id), put(n.order), put(static_cast<uint64_t>(n.rule));
      put(static_cast<uint64_t>(n.follows + 1));
    }
    for (const Leader& l : leaders) {
      put(l.alive), put(static_cast<uint64_t>(l.node)), put(l.term.number), put(l.agreement.order().number);
      put(static_cast<uint64_t>(l.agreement.order().rule));
      if (!l.alive) continue;
      for (const auto& [node, number] : l.taken) put(static_cast<uint64_t>(node)), put(number);
      put(99);
      for (const auto& [node, link] : l.links) {
        put(static_cast<uint64_t>(node));
        for (const TieOrder& order : link.down) put(order.number), put(static_cast<uint64_t>(order.rule));
        put(98);
        for (uint64_t number : link.up) put(number);
        put(97);
      }
    }
    return key;
  }
  bool Clashes() const {
    bool witness = false, lowest = false;
    for (const Node& n : nodes) witness |= n.rule == TieRule::kWitness, lowest |= n.rule == TieRule::kLowestRank;
    return witness && lowest;
  }

  void Leave(int node) { nodes[static_cast<size_t>(node)].follows = -1; }
  void Join(int node, int leader) {
    Node& n = nodes[static_cast<size_t>(node)];
    Leader& l = leaders[static_cast<size_t>(leader)];
    for (Leader& own : leaders)
      if (own.node == node && &own != &l && own.term < l.term) own.alive = false;  // it steps down
    n.term = l.term;
    n.order = 0;
    n.follows = leader;
    l.links[node] = {};
    Away(leader, node);
  }
  void Away(int leader, int node) {
    Leader& l = leaders[static_cast<size_t>(leader)];
    l.agreement.OnAway(node);
    l.taken.erase(node);
  }
};

constexpr uint64_t kOrdersMax = 5;

// All worlds one thing away.
std::vector<World> After(const World& world, size_t leaders_max, bool restarts) {
  std::vector<World> next;
  const int nodes = static_cast<int>(world.nodes.size());
  const auto changed = [&]() -> World& { return next.emplace_back(world); };
  for (size_t i = 0; i < world.leaders.size(); ++i) {
    const World::Leader& l = world.leaders[i];
    if (!l.alive) continue;
    for (TieRule wanted : {TieRule::kLowestRank, TieRule::kWitness}) {
      TieAgreement agreement = l.agreement;
      if (l.agreement.order().number < kOrdersMax && agreement.Decide(wanted).number != l.agreement.order().number)
        changed().leaders[i].agreement.Decide(wanted);
    }
    for (const auto& [node, link] : l.links) {
      const World::Node& n = world.nodes[static_cast<size_t>(node)];
      const TieOrder order = l.agreement.order();
      if (link.down.size() < 2 && (link.down.empty() || link.down.back().number != order.number) &&
          n.order != order.number)
        changed().leaders[i].links[node].down.push_back(order);
      if (!link.down.empty() && n.follows == static_cast<int>(i)) {
        World& w = changed();
        auto& mine = w.leaders[i].links[node];
        World::Node& taker = w.nodes[static_cast<size_t>(node)];
        const TieOrder taken = mine.down.front();
        mine.down.pop_front();
        if (taken.number > taker.order) {
          taker.order = taken.number;
          taker.rule = taken.rule;
          mine.up.push_back(taken.number);
        }
      }
      if (!link.up.empty()) {
        World& w = changed();
        w.leaders[i].agreement.OnTaken(node, link.up.front());
        w.leaders[i].taken[node] = link.up.front();
        w.leaders[i].links[node].up.pop_front();
      }
      if (n.follows != static_cast<int>(i)) {  // it notices, with or without what was still on its way
        World& w = changed();
        w.leaders[i].links.erase(node);
        w.Away(static_cast<int>(i), node);
      }
    }
    for (int node = 0; node < nodes; ++node) {
      const World::Node& n = world.nodes[static_cast<size_t>(node)];
      if (n.follows == static_cast<int>(i) || l.term < n.term) continue;
      const bool leads = std::any_of(world.leaders.begin(), world.leaders.end(), [&](const World::Leader& own) {
        return own.alive && own.node == node && l.term < own.term;
      });
      if (!leads) changed().Join(node, static_cast<int>(i));
    }
  }
  for (int node = 0; node < nodes; ++node) {
    const World::Node& n = world.nodes[static_cast<size_t>(node)];
    const bool leads = std::any_of(world.leaders.begin(), world.leaders.end(),
                                   [&](const World::Leader& own) { return own.alive && own.node == node; });
    if (!leads && world.leaders.size() < leaders_max) {
      World& w = changed();
      const Term term{n.term.number + 1, static_cast<uint64_t>(node) + 1};
      w.leaders.push_back({term, node, TieAgreement(nodes, n.rule), {}, {}, true});
      w.Join(node, static_cast<int>(w.leaders.size()) - 1);
    }
    if (restarts && (n.rule != TieRule::kNobody || n.follows >= 0)) {
      World& w = changed();
      for (World::Leader& own : w.leaders) own.alive = own.alive && own.node != node;
      w.nodes[static_cast<size_t>(node)] = {};
    }
  }
  return next;
}

struct Explored {
  size_t worlds = 0;
  size_t by_witness = 0, by_lowest = 0;  // in which all nodes go by it
  bool clash = false;
};

Explored Explore(int nodes, size_t leaders_max, bool restarts) {
  World first;
  first.nodes.resize(static_cast<size_t>(nodes));
  first.leaders.push_back({Term{1, 1}, 0, TieAgreement(nodes, TieRule::kNobody), {}, {}, true});
  for (int node = 0; node < nodes; ++node) first.Join(node, 0);
  std::set<std::string> known = {first.Key()};
  std::deque<World> open = {first};
  Explored explored;
  while (!open.empty()) {
    const World world = std::move(open.front());
    open.pop_front();
    ++explored.worlds;
    explored.clash = explored.clash || world.Clashes();
    const auto all = [&](TieRule rule) {
      return std::all_of(world.nodes.begin(), world.nodes.end(), [&](const World::Node& n) { return n.rule == rule; });
    };
    explored.by_witness += all(TieRule::kWitness);
    explored.by_lowest += all(TieRule::kLowestRank);
    for (World& next : After(world, leaders_max, restarts))
      if (known.insert(next.Key()).second) open.push_back(std::move(next));
  }
  return explored;
}

TEST(TieAgreement, NoNodeGoesByTheWitnessWhileAnotherGoesByTheLowestRank) {
  for (const auto& [nodes, leaders, restarts] :
       {std::tuple(2, size_t{1}, true), std::tuple(2, size_t{2}, true), std::tuple(3, size_t{1}, false)}) {
    const Explored explored = Explore(nodes, leaders, restarts);
    EXPECT_FALSE(explored.clash) << nodes << " nodes, " << leaders << " leaders";
    EXPECT_GT(explored.by_witness, 0u);
    EXPECT_GT(explored.by_lowest, 0u);
    RecordProperty("worlds_" + std::to_string(nodes) + "_" + std::to_string(leaders),
                   static_cast<int>(explored.worlds));
  }
}

TEST(TieAgreement, ChangesOnlyWhereEveryNodeIsThere) {
  TieAgreement agreement(2, TieRule::kWitness);
  agreement.OnTaken(0, 1);
  EXPECT_EQ(agreement.Decide(TieRule::kLowestRank).rule, TieRule::kWitness);
  agreement.OnTaken(1, 1);
  EXPECT_EQ(agreement.Decide(std::nullopt).rule, TieRule::kWitness);
  EXPECT_EQ(agreement.Decide(TieRule::kLowestRank).rule, TieRule::kNobody);
  agreement.OnTaken(0, 2);
  EXPECT_EQ(agreement.Decide(TieRule::kLowestRank).rule, TieRule::kNobody);
  agreement.OnTaken(1, 2);
  EXPECT_EQ(agreement.Decide(TieRule::kLowestRank).rule, TieRule::kLowestRank);
}

// ---- elections -----------------------------------------------------------------------------------------------------

class HalfElects : public testing::Test {
 protected:
  HalfElects() : core({1, 4, 60s}) {
    core.Follow(1);
    core.SetTieRule(TieRule::kWitness);
    core.Lose(now);
    now = now + 1s;
  }
  ElectionCore::Decision Tick() { return core.OnTick(now, {{Rank(2), Rank(3)}, {}}); }
  ElectionCore core;
  TimePoint now = TimePoint(1000s);
};

TEST_F(HalfElects, LeadsOnlyWithTheLease) {
  const auto asked = Tick();
  EXPECT_TRUE(asked.ask_witness);
  EXPECT_TRUE(asked.ask);
  EXPECT_FALSE(asked.lead);
  core.OnWitness(now + 1s);
  const auto led = Tick();
  ASSERT_TRUE(led.lead);
  EXPECT_TRUE(led.lead->majority);
}

TEST_F(HalfElects, NeverOnALeaseThatMayHaveRunOut) {
  (void)Tick();
  core.OnWitness(now + 100ms);
  now = now + 100ms;
  EXPECT_FALSE(Tick().lead);
  EXPECT_TRUE(Tick().ask_witness);
}

TEST_F(HalfElects, NeitherHalfLeadsWhileNothingIsAgreed) {
  ElectionCore lowest({0, 4, 60s});
  lowest.Follow(1);
  lowest.SetTieRule(TieRule::kNobody);
  lowest.Lose(now);
  now = now + 1s;
  const auto decision = lowest.OnTick(now, {{Rank(0), Rank(1)}, {}});
  EXPECT_FALSE(decision.lead);
  EXPECT_FALSE(decision.ask_witness);
}

// ---- a generation --------------------------------------------------------------------------------------------------

class HalfRecovers : public testing::Test {
 protected:
  static Policy Half(TieRule rule) {
    Policy policy = Bench::QuickPolicy(4);
    policy.needs_consent = true;
    policy.consent_wait = 3s;
    policy.tie_rule = rule;
    policy.save_directory = "saves";
    return policy;
  }
  explicit HalfRecovers(TieRule rule = TieRule::kWitness) : bench(Half(rule)) {
    bench.Run();
    bench.CommitAll(9);
    bench.replacements_come = false;
    for (int rank : {0, 1}) {  // their host is cut off: nobody can tell whether they live
      bench.mute.insert(rank);
      bench.silent.insert(rank);
      bench.Close(rank);
    }
    bench.Pass(1500ms);
  }
  Bench bench;
};

TEST_F(HalfRecovers, AsksTheWitnessAndGoesOnWithItsWord) {
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_FALSE(bench.All<AskWitness>().empty());
  bench.Feed(WitnessWord{bench.now + 10s});
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
}

TEST_F(HalfRecovers, StopsBeforeAnythingElseWhenTheWordHasRunOut) {
  bench.Feed(WitnessWord{bench.now + 500ms});
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  const Generation before = bench.core.generation();
  bench.now = bench.now + 500ms;  // it slept
  bench.Feed(ProcessExited{Rank(0), Incarnation(2), "could not be started", std::nullopt, true});
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  EXPECT_GT(bench.core.generation(), before);
  bench.Feed(WitnessWord{bench.now + 10s});
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
}

TEST_F(HalfRecovers, StopsWhenTheLeaseIsTaken) {
  bench.Feed(WitnessWord{bench.now + 10s});
  ASSERT_EQ(bench.core.phase(), Phase::kAdmit);
  bench.Feed(WitnessWord{});
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
}

TEST_F(HalfRecovers, WithoutAWordSavesWithoutMovingLatest) {
  bench.Pass(4s);
  ASSERT_TRUE(bench.Ended());
  EXPECT_EQ(bench.Ended()->exit_code, kExitResumable);
  for (int rank : {2, 3})
    for (const PhaseOrder& order : bench.Orders(Phase::kRename, rank)) EXPECT_FALSE(order.moves_latest);
}

TEST_F(HalfRecovers, ANodeThatIsBackMakesTheWordUnnecessary) {
  bench.Feed(WitnessWord{bench.now + 500ms});
  for (int rank : {0, 1}) bench.Feed(ProcessExited{Rank(rank), Incarnation(1), "had ended", std::nullopt});
  bench.now = bench.now + 1s;
  bench.Feed(WitnessWord{});
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
}

class HalfWithoutAgreement : public HalfRecovers {
 protected:
  HalfWithoutAgreement() : HalfRecovers(TieRule::kNobody) {}
};

TEST_F(HalfWithoutAgreement, AsksNobodyAndTakesNoWord) {
  EXPECT_TRUE(bench.All<AskWitness>().empty());
  bench.Feed(WitnessWord{bench.now + 10s});
  EXPECT_EQ(bench.core.phase(), Phase::kLock);
  bench.Feed(TieRuleTaken{TieRule::kWitness});
  EXPECT_EQ(bench.core.phase(), Phase::kAdmit);
}

// The side with the lowest rank acts by itself, and waits for what the other side may hold, which has the only copies.
class HalfWaitsForTheOther : public testing::Test {
 protected:
  static Policy Alone() {
    Policy policy = Bench::QuickPolicy(4);
    policy.needs_consent = true;
    policy.consent_wait = 3s;
    policy.tie_rule = TieRule::kLowestRank;
    policy.adopts = true;
    return policy;
  }
  HalfWaitsForTheOther() : bench(Alone()) {
    for (auto& [rank, claim] : bench.claims) claim[0].replicas = 1;
    bench.Run();
    bench.CommitAll(9);
    bench.replacements_come = false;
    for (int rank : {2, 3}) {
      bench.mute.insert(rank);
      bench.silent.insert(rank);
      bench.Close(rank);
    }
    bench.Pass(1500ms);
  }
  Bench bench;
};

TEST_F(HalfWaitsForTheOther, AndLeavesWhereItMayNotActAnyMore) {
  ASSERT_EQ(bench.core.phase(), Phase::kLock);
  bench.Feed(TieRuleTaken{TieRule::kNobody});
  bench.Pass(10s);
  EXPECT_TRUE(bench.Ended()) << "it waits for ever in " << PhaseName(bench.core.phase());
}

}  // namespace
}  // namespace kintsugi::core
