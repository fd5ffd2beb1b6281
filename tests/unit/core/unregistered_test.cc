// Tensors that a trainer takes out of its state: who is told, and what of the past counts no more.
#include <gtest/gtest.h>

#include "tests/unit/core/bench.h"

namespace kintsugi::core {
namespace {

using namespace std::chrono_literals;

const std::vector<std::string> kGone = {"cache"};

RegistrySummary Registry(const std::vector<std::string>& keys) {
  RegistrySummary registry;
  for (const std::string& key : keys)
    registry.tensors.push_back({.key = key, .global_shape = {4}, .local_shape = {4}, .global_offset = {0}});
  return registry;
}

// Four ranks, shards {0, 2} and {1, 3}; all registered `cache` and `weight`.
Bench RegistryBench(void (*change)(Policy*) = nullptr) {
  Policy policy = Bench::QuickPolicy(4);
  if (change) change(&policy);
  Bench bench(policy);
  for (int r = 0; r < 4; ++r) bench.registries[r] = Registry({"cache", "weight"});
  bench.Run();
  bench.CommitAll(5);
  return bench;
}

std::vector<std::string> Keys(const Bench& bench, int rank) {
  std::vector<std::string> keys;
  for (const TensorSummary& tensor : bench.member(rank).registry.tensors) keys.push_back(tensor.key);
  return keys;
}

// An incident in which `speakers` say in `phase` that the cache is gone.
void Drop(Bench& bench, Phase phase, const std::vector<int>& speakers) {
  bench.unregisters = {phase, {speakers.begin(), speakers.end()}, kGone};
  bench.Say(0, FaultReport{.kind = FaultKind::kException, .text = "planted", .step = Step(6)});
  bench.Say(0, Parked{GateState::kCommitted, Step(5), true});
}

TEST(Unregistered, WhatOneRankSaysAllAreToldWithTheirNextOrder) {
  for (const Phase phase : {Phase::kClean, Phase::kRebuild}) {
    Bench bench = RegistryBench();
    Drop(bench, phase, {1});
    ASSERT_EQ(bench.core.phase(), Phase::kRunning) << PhaseName(phase);
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(bench.Orders(Phase::kVerify, r).back().unregistered, kGone) << "rank " << r;
      EXPECT_EQ(Keys(bench, r), std::vector<std::string>{"weight"}) << "rank " << r;
    }
    EXPECT_TRUE(bench.Orders(Phase::kClean, 0).back().unregistered.empty()) << "nobody had said it yet";
  }
}

TEST(Unregistered, AReplacementRegistersItOnceMoreAndIsTold) {
  Bench bench = RegistryBench();
  Drop(bench, Phase::kClean, {0, 1, 2, 3});
  bench.Exit(2);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Orders(Phase::kRebuild, 2).back().unregistered, kGone);
  EXPECT_EQ(Keys(bench, 2), std::vector<std::string>{"weight"});
  EXPECT_TRUE(bench.Killed().empty()) << "it was refused for what others no longer have";
}

TEST(Unregistered, InRollbackOneThatDoesNotSaySoIsAnIncidentAfterWhichAllKnow) {
  Bench bench = RegistryBench();
  Drop(bench, Phase::kRollback, {0, 1, 3});
  bench.unregisters = {};
  bench.Pass(1s);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  const IncidentRecord record = bench.All<IncidentClosed>().back().record;
  EXPECT_EQ(std::count(record.ranks.begin(), record.ranks.end(), Rank(2)), 1);
  EXPECT_NE(record.earlier.back().ended_by.find("'cache'"), std::string::npos) << record.earlier.back().ended_by;
  for (int r = 0; r < 4; ++r) EXPECT_EQ(Keys(bench, r), std::vector<std::string>{"weight"}) << "rank " << r;
}

TEST(Unregistered, SnapshotsFromBeforeCountNoMore) {
  Bench bench = RegistryBench([](Policy* policy) { policy->snapshot_every = 4; });
  for (int r = 0; r < 4; ++r) bench.digests[r][0] = 1;
  for (int owner = 0; owner < 4; ++owner)
    for (const auto& [to, order] : bench.Sent<SnapshotOrder>()) {
      SnapshotReport report;
      report.owner = Rank(owner);
      report.step = Step(4);
      report.digests[0] = 1;
      report.begun = Step(5);
      if (to == Rank(owner) || std::count(order.of.begin(), order.of.end(), Rank(owner)) > 0)
        bench.Say(to.value(), report);
    }
  ASSERT_EQ(bench.core.snapshots().table().newest(), Step(4));
  Drop(bench, Phase::kClean, {1});
  EXPECT_EQ(bench.core.snapshots().table().newest(), Step());
}

TEST(Unregistered, DamageInATensorThatIsGoneNeedsNoRepair) {
  Bench bench = RegistryBench();
  bench.unregisters = {Phase::kClean, {1}, kGone};
  bench.Say(1, FaultReport{.kind = FaultKind::kMemoryLow, .text = "planted", .damaged_keys = kGone, .step = Step(6)});
  bench.Say(1, Parked{GateState::kCommitted, Step(5), true});
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_TRUE(bench.Orders(Phase::kRepair, 1).empty()) << "nothing of it is streamed";
}

TEST(Unregistered, WhoTakesARunOverHearsOfItFromTheRanks) {
  Policy policy = Bench::QuickPolicy(4);
  policy.takes_over = true;
  Bench bench(policy, Term{2, 2});
  bench.Start();
  for (int r = 0; r < 4; ++r) {
    bench.Feed(ProcessFound{Rank(r), Incarnation(3)});
    const Header header{Term{1, 1}, Generation(5), Rank(r), Incarnation(3)};
    bench.Feed(FromAgent{
        header, JoinRequest{.pid = 1, .host = "h", .standing = core::Standing::kRunning, .joined_before = true}});
    Ready ready{.registry = Registry({"weight"}), .layouts = bench.claims[r]};
    ready.unregistered = kGone;
    bench.Say(r, ready);
  }
  bench.registries[3] = Registry({"cache", "weight"});
  bench.CommitAll(5);
  bench.Pass(1s);
  bench.Exit(3);
  ASSERT_EQ(bench.core.phase(), Phase::kRunning);
  EXPECT_EQ(bench.Orders(Phase::kRebuild, 3).back().unregistered, kGone);
}

}  // namespace
}  // namespace kintsugi::core
