#include "runtime/core/agent_news.h"

#include <gtest/gtest.h>

namespace kintsugi::core {
namespace {

template <typename T>
std::vector<T> Said(const AgentNews& news, bool locked) {
  std::vector<T> said;
  for (const AgentMessage& message : news.Again(locked))
    if (const auto* of_kind = std::get_if<T>(&message)) said.push_back(*of_kind);
  return said;
}

FaultReport Fault(FaultKind kind) {
  FaultReport fault;
  fault.kind = kind;
  return fault;
}

TEST(AgentNews, OfALoopAreKeptToItselfWhileTheGateIsLocked) {
  AgentNews news;
  news.SetReady({});
  news.Publish({Step(4), "saves"});
  news.AddFault(Fault(FaultKind::kException));
  news.EnterGate(Step(5));
  news.StandAtSavePoint({Step(4)});
  news.Finish({Step(9)});
  ASSERT_TRUE(news.BeginSnapshot(Step(4), Step()));
  news.AddSnapshot({.step = Step(4)});
  EXPECT_EQ(news.Again(false).size(), 7u);
  EXPECT_EQ(news.Again(true).size(), 3u);
  EXPECT_EQ(Said<Published>(news, true).size(), 1u);
  EXPECT_EQ(Said<Ready>(news, true).size(), 1u);
  EXPECT_EQ(Said<FaultReport>(news, true).size(), 1u);
}

TEST(AgentNews, OfAnOldGenerationAreForgottenButDamagedMemoryIsNot) {
  AgentNews news;
  news.SetReady({});
  news.Publish({Step(4), "saves"});
  for (const FaultKind kind : {FaultKind::kException, FaultKind::kMemoryLow, FaultKind::kMemoryHigh})
    news.AddFault(Fault(kind));
  news.EnterGate(Step(5));
  ASSERT_TRUE(news.BeginSnapshot(Step(4), Step()));
  news.AddSnapshot({.step = Step(4)});
  news.OnGeneration();
  EXPECT_EQ(Said<FaultReport>(news, false).size(), 2u);
  EXPECT_TRUE(Said<GateEntered>(news, false).empty());
  EXPECT_TRUE(Said<SnapshotReport>(news, false).empty());
  EXPECT_FALSE(news.IsSnapshot(Step(4)));
  EXPECT_FALSE(news.LeaveGate(Step(5)));
  EXPECT_EQ(Said<Published>(news, true).size(), 1u) << "until the run goes on";
  news.OnRunGoesOn();
  EXPECT_TRUE(Said<Published>(news, true).empty());
  EXPECT_EQ(Said<Ready>(news, true).size(), 1u);
}

TEST(AgentNews, AGateThatIsOpenedTwiceOpensNoLaterOne) {
  AgentNews news;
  news.EnterGate(Step(5));
  EXPECT_FALSE(news.LeaveGate(Step(4)));
  EXPECT_TRUE(news.LeaveGate(Step(5)));
  EXPECT_FALSE(news.LeaveGate(Step(5)));
  EXPECT_EQ(Said<GateEntered>(news, false).size(), 1u) << "who took over does not know that it opened";
  news.EnterGate(Step(6));
  EXPECT_FALSE(news.LeaveGate(Step(5)));
  EXPECT_EQ(Said<GateEntered>(news, false).at(0).step, Step(6));
}

TEST(AgentNews, ARepairProvesWhatWasDamagedBeforeItsDigests) {
  AgentNews news;
  news.AddFault(Fault(FaultKind::kMemoryHigh));
  news.OnVerify();
  EXPECT_TRUE(news.OnRollback());
  EXPECT_FALSE(news.has_damage());
  EXPECT_TRUE(Said<FaultReport>(news, true).empty());

  news.AddFault(Fault(FaultKind::kMemoryHigh));
  news.OnVerify();
  news.AddFault(Fault(FaultKind::kMemoryHigh));
  EXPECT_FALSE(news.OnRollback()) << "of the second the digests say nothing";
  EXPECT_TRUE(news.has_damage());
  EXPECT_EQ(Said<FaultReport>(news, true).size(), 1u);
}

TEST(AgentNews, TheFirstFaultsAreKept) {
  AgentNews news;
  for (int i = 0; i < 100; ++i) {
    FaultReport fault = Fault(FaultKind::kException);
    fault.text = std::to_string(i);
    news.AddFault(fault);
  }
  const std::vector<FaultReport> said = Said<FaultReport>(news, true);
  ASSERT_EQ(said.size(), 64u);
  EXPECT_EQ(said.back().text, "63");
}

TEST(AgentNews, ASnapshotIsBegunOnceAStep) {
  AgentNews news;
  EXPECT_TRUE(news.BeginSnapshot(Step(4), Step()));
  news.AddSnapshot({.step = Step(4)});
  EXPECT_FALSE(news.BeginSnapshot(Step(4), Step()));
  EXPECT_EQ(news.snapshots().size(), 1u);
  EXPECT_TRUE(news.BeginSnapshot(Step(8), Step()));
  EXPECT_TRUE(news.snapshots().empty());
}

// What it holds of a snapshot, as it tells it to a controller that takes over.
std::vector<uint64_t> Counts(const AgentNews& news) {
  std::vector<uint64_t> steps;
  for (const SnapshotReport& report : Said<SnapshotReport>(news, /*locked=*/true)) {
    EXPECT_TRUE(report.counts);
    steps.push_back(report.step.value());
  }
  return steps;
}

TEST(AgentNews, TheSnapshotThatCountsIsToldToWhoTakesOver) {
  AgentNews news;
  news.BeginSnapshot(Step(4), Step());
  news.AddSnapshot({.owner = Rank(1), .step = Step(4)});
  news.AddSnapshot({.owner = Rank(2), .step = Step(4)});
  EXPECT_EQ(Counts(news), std::vector<uint64_t>{}) << "nobody has said that it does";
  news.BeginSnapshot(Step(8), Step(4));
  EXPECT_EQ(Counts(news), (std::vector<uint64_t>{4, 4}));
  EXPECT_TRUE(std::holds_alternative<SnapshotReport>(news.Again(true).front())) << "before it says that it is ready";
  news.AddSnapshot({.owner = Rank(1), .step = Step(8)});
  news.AddSnapshot({.owner = Rank(2), .step = Step(8), .code = StatusCode::kCancelled});
  news.OnGeneration();
  EXPECT_EQ(Counts(news), (std::vector<uint64_t>{4, 4}));
  for (const uint64_t keep : {8, 4, 0}) {
    AgentNews later = news;
    later.OnReleased(Step(keep));
    EXPECT_EQ(Counts(later), std::vector<uint64_t>(keep / 4 % 2 == 1 ? 2 : keep / 8, keep))
        << "of a broken copy nothing";
  }
}

TEST(AgentNews, WhoIsReleasedStandsNowhere) {
  AgentNews news;
  EXPECT_FALSE(news.LeaveSavePoint());
  news.StandAtSavePoint({Step(4)});
  EXPECT_EQ(Said<SavePoint>(news, false).at(0).step, Step(4));
  EXPECT_TRUE(news.LeaveSavePoint());
  news.StandAtSavePoint({Step(4)});
  news.Finish({Step(9)});
  news.OnReleased(Step());
  EXPECT_TRUE(news.Again(false).empty());
}

}  // namespace
}  // namespace kintsugi::core
