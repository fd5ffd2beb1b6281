// Reports that are kept for leaders to come, and who a launcher is among the others.
#include "runtime/launcher/node/retained_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/launcher/node/node_state.h"

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

wire::WorkerReport Report(int rank, uint64_t step, double loss = 1) { return {Rank(rank), step, loss, {}}; }

wire::KeepTotals Totals(uint64_t step, std::vector<double> curve, uint64_t from = 0, uint64_t every = 1) {
  core::LedgerTotals totals;
  totals.step = step;
  totals.curve = std::move(curve);
  totals.curve_every = every;
  return {totals, from};
}

struct Shelf : ::testing::Test {
  std::vector<uint64_t> Retell(size_t at_most) {
    std::vector<uint64_t> told;
    retained.Retell(at_most, [&](const wire::WorkerReport& report) {
      told.push_back(report.step);
      return true;
    });
    return told;
  }
  RetainedReports retained;
};

TEST_F(Shelf, ANewLeaderIsToldAllAFewAtATimeAndOnce) {
  for (uint64_t step = 1; step <= 5; ++step) retained.Keep(Report(0, step));
  EXPECT_THAT(Retell(10), IsEmpty()) << "this leader was told each as it came";
  retained.BeginToRetell();
  EXPECT_THAT(Retell(2), ElementsAre(1, 2));
  EXPECT_THAT(Retell(2), ElementsAre(3, 4));
  EXPECT_THAT(Retell(2), ElementsAre(5));
  retained.Keep(Report(0, 6));
  EXPECT_THAT(Retell(2), IsEmpty()) << "what comes later is told when it comes";
}

TEST_F(Shelf, WhatDidNotGoOutIsToldLater) {
  retained.Keep(Report(0, 1));
  retained.Keep(Report(0, 2));
  retained.BeginToRetell();
  int times = 0;
  retained.Retell(10, [&](const wire::WorkerReport&) { return ++times == 1; });
  EXPECT_THAT(Retell(10), ElementsAre(2));
}

TEST_F(Shelf, WhatIsInTheSumsIsNotKept) {
  retained.Keep(Report(0, 1));
  retained.Keep(Report(7, 2));
  retained.Keep(Report(0, 3));
  retained.OnTotals(Totals(2, {5, 4}));
  EXPECT_EQ(retained.size(), 1u);
  retained.Keep(Report(1, 2));
  EXPECT_EQ(retained.size(), 1u) << "told twice";
  EXPECT_EQ(retained.totals().step, 2u);
}

TEST_F(Shelf, OfOneRankAndStepTheNewestReportIsKept) {
  retained.Keep(Report(0, 1, 9));
  retained.Keep(Report(0, 1, 8));
  EXPECT_EQ(retained.size(), 1u);
  retained.BeginToRetell();
  retained.Retell(10, [](const wire::WorkerReport& report) {
    EXPECT_EQ(report.loss, 8);
    return true;
  });
}

TEST_F(Shelf, ACurveComesInPiecesThatFit) {
  retained.OnTotals(Totals(2, {5, 4}));
  retained.OnTotals(Totals(3, {3}, 2));
  EXPECT_THAT(retained.totals().curve, ElementsAre(5, 4, 3));
  retained.OnTotals(Totals(9, {1}, 7));
  EXPECT_EQ(retained.totals().step, 3u) << "a piece is missing before it";
  retained.OnTotals(Totals(9, {1}, 1, 2));
  EXPECT_EQ(retained.totals().step, 3u) << "it was thinned out otherwise";
  retained.OnTotals(Totals(9, {5, 3}, 0, 2));
  EXPECT_THAT(retained.totals().curve, ElementsAre(5, 3)) << "all of it comes soon";
}

NodeSelf Self(int node_rank, int controllers = 0, int controller = -1) {
  NodeLauncherOptions options;
  options.run.nodes = 2;
  options.run.policy.world_size = 4;
  options.run.controllers = controllers;
  options.controllers.resize(static_cast<size_t>(controllers));
  options.node_rank = node_rank;
  options.controller = controller;
  return NodeSelf(options);
}

TEST(NodeSelf, NodesComeFirstThenControllersThenSpares) {
  EXPECT_EQ(Self(1, 2).index(), 1);
  EXPECT_EQ(Self(0, 2, 1).index(), 3);
  EXPECT_EQ(Self(2, 2).index(), 4) << "a spare node";
  EXPECT_EQ(Self(2, 2).name(), "node 2");
  EXPECT_EQ(Self(0, 2, 1).name(), "controller 1");
  EXPECT_EQ(Self(1).NameOf(2), "node 2");
}

TEST(NodeSelf, TheFirstControllerLeadsFirstOrNodeZero) {
  EXPECT_TRUE(Self(0).founds());
  EXPECT_FALSE(Self(1).founds());
  EXPECT_FALSE(Self(0, 2).founds()) << "there are controllers";
  EXPECT_TRUE(Self(0, 2, 0).founds());
  EXPECT_FALSE(Self(0, 2, 1).founds());
}

TEST(NodeSelf, ControllersStandForElectionBeforeNodes) {
  EXPECT_LT(Self(0, 2, 1).turn(), Self(0, 2).turn());
  EXPECT_LT(Self(0, 2).turn(), Self(1, 2).turn());
}

}  // namespace
}  // namespace kintsugi
