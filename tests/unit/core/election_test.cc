// Launchers that elect one of them, over a network that loses, delays and parts.
#include "runtime/core/election.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "runtime/base/random.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

// Nodes of two ranks each, with a leader that everybody has lost. Frames take up to 30 ms, or are lost.
class Nodes {
 public:
  Nodes(int nodes, uint64_t seed) : random_(seed) {
    for (int n = 0; n < nodes; ++n) cores_.emplace_back(ElectionOptions{n, 2 * nodes, 20s});
    up_.assign(static_cast<size_t>(nodes), true);
    side_.assign(static_cast<size_t>(nodes), 0);
    for (ElectionCore& core : cores_) core.Follow(1);
  }

  void Down(int node) { up_[static_cast<size_t>(node)] = false; }
  void Lose(int node) { cores_[static_cast<size_t>(node)].Lose(now); }
  void LoseAll() {
    for (size_t n = 0; n < cores_.size(); ++n)
      if (up_[n]) cores_[n].Lose(now);
  }
  void Pass(Duration length) {
    for (const TimePoint end = now + length; now < end; now = now + 10ms) {
      for (auto it = frames_.begin(); it != frames_.end() && it->first <= now; it = frames_.erase(it)) it->second();
      for (size_t n = 0; n < cores_.size(); ++n)
        if (up_[n]) Do(static_cast<int>(n), cores_[n].OnTick(now, Standing(static_cast<int>(n))));
    }
  }

  TimePoint now = TimePoint(1000s);
  double loss = 0;
  std::vector<int> side_;  // of each node: others are not heard
  std::set<uint64_t> terms;
  std::vector<std::pair<int, ElectionCore::Lead>> leads;
  bool followers_hear = true;  // of a new leader

 private:
  static ElectionCore::LocalRanks Standing(int node) { return {{Rank(2 * node), Rank(2 * node + 1)}, {}}; }

  void Send(int from, int to, std::function<void()> what) {
    const auto f = static_cast<size_t>(from), t = static_cast<size_t>(to);
    if (!up_[t] || side_[f] != side_[t] || random_.Chance(loss)) return;
    frames_.emplace(now + Duration(static_cast<int64_t>(random_.Below(30'000'000))), std::move(what));
  }
  void Do(int node, const ElectionCore::Decision& decision) {
    if (decision.ask)
      for (int to = 0; to < static_cast<int>(cores_.size()); ++to)
        if (to != node) Send(node, to, [this, node, to, term = decision.ask->term] { Ask(node, to, term); });
    if (!decision.lead) return;
    leads.emplace_back(node, *decision.lead);
    if (!followers_hear) return;
    for (int to = 0; to < static_cast<int>(cores_.size()); ++to)
      Send(node, to, [this, to, term = decision.lead->term] {
        ElectionCore& core = cores_[static_cast<size_t>(to)];
        if (core.MayFollow(term, now)) core.Follow(term);
      });
  }
  void Ask(int from, int to, uint64_t term) {
    if (!cores_[static_cast<size_t>(to)].OnRequest(from, term, now)) return;
    Send(to, from,
         [this, from, to, term] { Do(from, cores_[static_cast<size_t>(from)].OnVote(to, term, Standing(to))); });
  }

  Random random_;
  std::vector<ElectionCore> cores_;
  std::vector<bool> up_;
  std::multimap<TimePoint, std::function<void()>> frames_;
};

TEST(Election, TheNextNodeLeadsWithinASecond) {
  Nodes nodes(3, 1);
  nodes.Down(0);
  nodes.LoseAll();
  nodes.Pass(1s);
  ASSERT_EQ(nodes.leads.size(), 1u);
  EXPECT_EQ(nodes.leads[0].first, 1);
  EXPECT_EQ(nodes.leads[0].second.term, 2u);
  EXPECT_TRUE(nodes.leads[0].second.majority);
}

TEST(Election, ALeaderThatOthersHearIsNotUnseated) {
  Nodes nodes(4, 1);
  nodes.Lose(3);  // it alone
  nodes.Pass(10s);
  EXPECT_TRUE(nodes.leads.empty());
}

TEST(Election, BeforeTheFirstLeaderNobodyStands) {
  ElectionCore core({1, 4, 1s});
  EXPECT_FALSE(core.OnTick(TimePoint(100s), {}).ask);
  EXPECT_TRUE(core.OnRequest(0, 5, TimePoint(100s)));  // and yet it votes
  EXPECT_FALSE(core.OnRequest(2, 5, TimePoint(100s)));
  EXPECT_TRUE(core.OnRequest(0, 5, TimePoint(100s)));
  EXPECT_FALSE(core.OnRequest(0, 4, TimePoint(100s)));
}

TEST(Election, WhoLedAPartHasPromisedItsNumberToItself) {
  ElectionCore core({1, 6, 1s});
  TimePoint now(100s);
  core.Follow(1);
  core.Lose(now);
  EXPECT_TRUE(core.OnRequest(2, 5, now));
  now = now + 1s;
  const auto lead = core.OnTick(now, {{Rank(2), Rank(3)}, {}}).lead;
  ASSERT_TRUE(lead && !lead->majority && lead->term == 6);
  core.StepDown(6, now);
  EXPECT_FALSE(core.OnRequest(2, 6, now)) << "the candidate of an earlier number";
  EXPECT_TRUE(core.OnRequest(2, 7, now));
}

TEST(Election, ACandidateThatWasCutOffGoesBackToItsLeader) {
  ElectionCore core({1, 6, 60s});
  TimePoint now(100s);
  core.Follow(4);
  core.Lose(now);
  now = now + 5s;
  EXPECT_TRUE(core.OnTick(now, {}).ask);  // it has stood, for newer terms than its leader's
  EXPECT_TRUE(core.MayFollow(4, now));
  EXPECT_FALSE(core.MayFollow(3, now));
  core.Follow(4);
  EXPECT_FALSE(core.OnTick(now + 1s, {}).ask);
}

TEST(Election, APromiseHoldsForARound) {
  ElectionCore core({1, 6, 60s});
  TimePoint now(100s);
  core.Follow(4);
  core.Lose(now);
  EXPECT_TRUE(core.OnRequest(2, 5, now));
  EXPECT_FALSE(core.MayFollow(4, now));
  EXPECT_TRUE(core.MayFollow(5, now));
  EXPECT_TRUE(core.MayFollow(4, now + 1s));  // nothing came of it
  core.Follow(5);
  EXPECT_FALSE(core.MayFollow(4, now + 10s));
}

TEST(Election, WhoSteppedDownForALeaderThatIsGoneStandsAgain) {
  ElectionCore core({0, 2, 60s});
  TimePoint now(100s);
  core.Follow(4);
  core.Lose(now);
  now = now + 1s;
  ASSERT_TRUE(core.OnTick(now, {{Rank(0), Rank(1)}, {}}).lead);
  core.StepDown(6, now);  // it has not followed itself yet, nor the other
  EXPECT_TRUE(core.leaderless());
  const auto again = core.OnTick(now + 1s, {{Rank(0), Rank(1)}, {}}).lead;
  ASSERT_TRUE(again);
  EXPECT_EQ(again->term, 7u) << "of term 6 another was the leader";
  core.Lose(now + 1s);  // its launcher does not hear itself, and stands again
  core.StepDown(9, now + 2s);
  const auto later = core.OnTick(now + 3s, {{Rank(0), Rank(1)}, {}}).lead;
  ASSERT_TRUE(later);
  EXPECT_EQ(later->term, 10u);
}

TEST(Election, AHalfWithoutTheLowestRankWaitsAndLeadsOnlyToLeave) {
  Nodes nodes(2, 1);
  nodes.Down(0);
  nodes.LoseAll();
  nodes.Pass(19s);
  EXPECT_TRUE(nodes.leads.empty());
  nodes.Pass(2s);
  ASSERT_EQ(nodes.leads.size(), 1u);
  EXPECT_FALSE(nodes.leads[0].second.majority);
}

// Whatever the network does: of one term there is one leader, and a leader of a majority leads alone.
TEST(Election, NeverTwoLeadersOfOneTerm) {
  int led = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    const int count = 2 + static_cast<int>(random.Below(5));
    Nodes nodes(count, seed);
    nodes.loss = random.Chance(0.5) ? 0 : 0.4;
    nodes.followers_hear = random.Chance(0.7);
    if (random.Chance(0.6)) nodes.Down(static_cast<int>(random.Below(static_cast<uint64_t>(count))));
    for (int& side : nodes.side_) side = random.Chance(0.3);
    nodes.LoseAll();
    for (int i = 0; i < 4; ++i) {
      nodes.Pass(2s);
      for (int& side : nodes.side_) side = random.Chance(0.3);
    }
    std::set<uint64_t> terms;
    for (const auto& [node, lead] : nodes.leads) {
      ASSERT_TRUE(lead.majority);
      ASSERT_TRUE(terms.insert(lead.term).second) << "seed " << seed << ": two leaders of term " << lead.term;
    }
    led += !nodes.leads.empty();
  }
  EXPECT_GT(led, 2000);
}

}  // namespace
}  // namespace kintsugi::core
