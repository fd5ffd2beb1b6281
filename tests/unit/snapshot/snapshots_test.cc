// In-memory snapshots between ranks of one process: made, kept by the partner, given back.
#include "replica/snapshot/snapshots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>

#include "replica/defaults.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

TimePoint In(Duration d) { return SteadyClock::SteadyNow() + d; }

struct TestRank {
  TestRank(int self, float value, size_t elements = 300'001) : rank(self) {
    for (const char* key : {"a", "b", "expert"}) {
      auto& data = *tensors.emplace_back(std::make_unique<std::vector<float>>(elements));
      for (size_t i = 0; i < elements; ++i) data[i] = value + static_cast<float>(i % 1000);
      const auto count = static_cast<int64_t>(elements);
      const Status added =
          registry.AddTensor({.key = key,
                              .global_shape = {count},
                              .local_shape = {count},
                              .global_offset = {0},
                              .layout = key[0] == 'e' ? 1 : 0,
                              .memory = {.data = data.data(), .size_bytes = elements * sizeof(float)}});
      EXPECT_TRUE(added.ok()) << added.ToString();
    }
    service = std::make_unique<ReplicaDefaults>(registry);
    snapshots = std::make_unique<Snapshots>(registry, [this](Step step) { return service->PackMirrored(step); });
    service->SetSnapshots(snapshots.get());
  }
  ~TestRank() { snapshots->Stop(); }

  SnapshotService::Session Session(std::shared_ptr<Store> store, uint64_t generation) {
    SnapshotService::Session session;
    session.generation = Generation(generation);
    session.self = rank;
    session.store = std::move(store);
    session.limit = 20s;
    session.unchanged = [this](Step step) { return at.load() == step.value() && (looks.fetch_add(1) < looks_max); };
    session.report = [this](SnapshotReport report) {
      std::lock_guard lock(mutex);
      reports.push_back(std::move(report));
      changed.notify_all();
    };
    return session;
  }
  HandlerContext Call(Store& store, CancelToken& cancel, uint64_t generation, Step step) const {
    HandlerContext call;
    call.rank = rank;
    call.generation = Generation(generation);
    call.step = step;
    call.deadline = In(60s);
    call.cancel = &cancel;
    call.store = &store;
    call.rung = Rung::kReload;
    call.from_snapshot = true;
    return call;
  }
  // Of this owner's copy of that step; the test fails when none comes.
  SnapshotReport Report(int owner, uint64_t step) {
    std::unique_lock lock(mutex);
    SnapshotReport found;
    const bool came = changed.wait_for(lock, 30s, [&] {
      for (const SnapshotReport& report : reports)
        if (report.owner == Rank(owner) && report.step == Step(step)) return found = report, true;
      return false;
    });
    EXPECT_TRUE(came) << "rank " << rank.ToString() << " says nothing of rank " << owner << " at step " << step;
    return found;
  }
  void Change(float by) {
    for (auto& tensor : tensors)
      for (float& element : *tensor) element += by;
  }

  const Rank rank;
  std::vector<std::unique_ptr<std::vector<float>>> tensors;
  StateRegistry registry;
  std::atomic<uint64_t> at{0};
  std::atomic<int> looks{0};
  int looks_max = 1 << 30;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<SnapshotReport> reports;
  std::unique_ptr<ReplicaDefaults> service;
  std::unique_ptr<Snapshots> snapshots;
};

// Three ranks: each keeps the copy of the one below.
class SnapshotsTest : public testing::Test {
 protected:
  SnapshotsTest() {
    for (int i = 0; i < 3; ++i) ranks.push_back(std::make_unique<TestRank>(i, 10.0f * static_cast<float>(i)));
  }
  static SnapshotOrder Order(int rank, uint64_t step, uint64_t keep) {
    return {Step(step), Step(keep), Rank((rank + 1) % 3), {Rank((rank + 2) % 3)}};
  }
  void Prepare(uint64_t generation, uint64_t step, uint64_t keep) {
    for (int i = 0; i < 3; ++i)
      ranks[static_cast<size_t>(i)]->snapshots->Prepare(ranks[static_cast<size_t>(i)]->Session(store, generation),
                                                        Order(i, step, keep));
  }
  void Take(uint64_t step) {
    for (auto& rank : ranks) {
      rank->at = step;
      rank->snapshots->Take(Step(step));
    }
  }
  void MakeOne(uint64_t generation, uint64_t step, uint64_t keep) {
    Prepare(generation, step, keep);
    Take(step);
    for (int i = 0; i < 3; ++i) {
      // The owner's word, and its partner's, which comes later.
      for (const int holder : {i, (i + 1) % 3}) {
        const SnapshotReport report = ranks[static_cast<size_t>(holder)]->Report(i, step);
        ASSERT_EQ(report.code, StatusCode::kOk) << report.text;
      }
    }
  }
  std::vector<Status> Reload(uint64_t generation, uint64_t step, const std::vector<RepairMove>& moves) {
    std::vector<Status> statuses(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        auto call = ranks[i]->Call(*store, cancel, generation, Step(step));
        call.moves = moves;
        statuses[i] = ReplicaDefaults::RepairHandler(call, ranks[i]->service.get());
      });
    for (auto& thread : threads) thread.join();
    return statuses;
  }

  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  CancelToken cancel;
  std::vector<std::unique_ptr<TestRank>> ranks;
};

TEST_F(SnapshotsTest, IsKeptByTheOwnerAndByThePartnerWithTheDigestOfTheState) {
  MakeOne(1, 4, 0);
  for (int i = 0; i < 3; ++i) {
    TestRank& owner = *ranks[static_cast<size_t>(i)];
    TestRank& keeper = *ranks[static_cast<size_t>((i + 1) % 3)];
    const auto digests = owner.service->Digests(cancel);
    EXPECT_EQ(owner.Report(i, 4).digests, *digests);
    const SnapshotReport kept = keeper.Report(i, 4);
    EXPECT_EQ(kept.code, StatusCode::kOk) << kept.text;
    EXPECT_EQ(kept.digests, *digests);
    EXPECT_GT(owner.Report(i, 4).cost.count(), 0);
  }
}

TEST_F(SnapshotsTest, ComesBackWhereItWasMadeAndWhereItsProcessIsNew) {
  MakeOne(1, 4, 0);
  const auto before = *ranks[0]->service->Digests(cancel), of_two = *ranks[2]->service->Digests(cancel);
  for (auto& rank : ranks) rank->Change(1.0f);
  for (auto& rank : ranks) rank->snapshots->Abort();
  ranks[2] = std::make_unique<TestRank>(2, -5.0f);
  std::vector<RepairMove> moves;
  for (int layout : {0, 1})
    moves.push_back({layout, Rank(2), {Rank(0)}, {}, false, Rank(2)});  // rank 0 keeps the copy of rank 2
  for (const Status& status : Reload(2, 4, moves)) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(*ranks[0]->service->Digests(cancel), before);
  EXPECT_EQ(*ranks[2]->service->Digests(cancel), of_two);
}

TEST_F(SnapshotsTest, OneThatTheUpdateOvertakesIsAbandonedAndTheOneBeforeStays) {
  MakeOne(1, 4, 0);
  const auto before = *ranks[1]->service->Digests(cancel);
  ranks[1]->looks = 0;
  ranks[1]->looks_max = 3;  // the fourth piece finds another step
  ranks[1]->Change(2.0f);
  Prepare(1, 8, 4);
  Take(8);
  const SnapshotReport report = ranks[1]->Report(1, 8);
  EXPECT_EQ(report.code, StatusCode::kCancelled);
  EXPECT_NE(report.text.find("the next gate came after"), std::string::npos) << report.text;
  EXPECT_TRUE(ranks[1]->snapshots->Checked(Rank(1), Step(4)).ok());
  EXPECT_EQ(ranks[1]->snapshots->Checked(Rank(1), Step(8)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ranks[2]->snapshots->Checked(Rank(1), Step(8)).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(ranks[2]->snapshots->Checked(Rank(1), Step(4)).ok());
  EXPECT_EQ((*ranks[2]->snapshots->Checked(Rank(1), Step(4)))->digests, before);
}

TEST_F(SnapshotsTest, TheNewestThatCountsStaysWhateverFollows) {
  MakeOne(1, 4, 0);
  MakeOne(1, 8, 4);  // made, but the controller has not said that it counts
  MakeOne(1, 12, 4);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ranks[static_cast<size_t>(i)]->snapshots->Checked(Rank(i), Step(4)).ok());
    EXPECT_TRUE(ranks[static_cast<size_t>(i)]->snapshots->Checked(Rank((i + 2) % 3), Step(4)).ok());
    EXPECT_TRUE(ranks[static_cast<size_t>(i)]->snapshots->Checked(Rank(i), Step(12)).ok());
    EXPECT_FALSE(ranks[static_cast<size_t>(i)]->snapshots->Checked(Rank(i), Step(8)).ok());
  }
}

TEST_F(SnapshotsTest, DamageInTheCopyIsFoundBeforeItIsGivenBack) {
  MakeOne(1, 4, 0);
  const auto held = ranks[0]->snapshots->Checked(Rank(0), Step(4));
  ASSERT_TRUE(held.ok());
  static_cast<uint8_t*>((*held)->memory[1].data)[77] ^= 4;
  EXPECT_EQ(ranks[0]->snapshots->Checked(Rank(0), Step(4)).status().code(), StatusCode::kDataLoss);
  ranks[0]->Change(1.0f);
  const auto live = *ranks[0]->service->Digests(cancel);
  const auto statuses = Reload(2, 4, {});
  EXPECT_EQ(statuses[0].code(), StatusCode::kDataLoss) << statuses[0].ToString();
  EXPECT_EQ(*ranks[0]->service->Digests(cancel), live) << "nothing was written";
  EXPECT_TRUE(statuses[1].ok()) << statuses[1].ToString();
}

TEST_F(SnapshotsTest, AnIncidentEndsWhatIsUnderWayAndTheNextGenerationGoesOn) {
  MakeOne(1, 4, 0);
  Prepare(1, 8, 4);
  for (auto& rank : ranks) rank->snapshots->Abort();
  Take(8);
  for (auto& rank : ranks) rank->snapshots->AwaitQuiet();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(ranks[static_cast<size_t>(i)]->snapshots->Checked(Rank(i), Step(8)).ok());
  MakeOne(2, 12, 4);
  EXPECT_TRUE(ranks[0]->snapshots->Checked(Rank(2), Step(12)).ok());
  EXPECT_TRUE(ranks[0]->snapshots->Checked(Rank(2), Step(4)).ok());
}

MirroredObjects Objects(int rank) {
  return {{"object", std::make_shared<const std::vector<uint8_t>>(2, static_cast<uint8_t>(rank))}};
}

TEST_F(SnapshotsTest, BringsMirroredObjectsOfTheWholeGroup) {
  for (int i = 0; i < 3; ++i) {
    auto call = ranks[static_cast<size_t>(i)]->Call(*store, cancel, 1, Step(0));
    ASSERT_TRUE(ranks[static_cast<size_t>(i)]->service->Open(call).ok());
    ASSERT_TRUE(ranks[static_cast<size_t>(i)]->service->Mirror(Step(4), Objects(i)).ok());
  }
  MakeOne(1, 4, 0);
  ranks[2] = std::make_unique<TestRank>(2, -5.0f);
  std::vector<RepairMove> moves;
  for (int layout : {0, 1}) moves.push_back({layout, Rank(2), {Rank(0)}, {}, false, Rank(2)});
  for (const Status& status : Reload(2, 4, moves)) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(JoinMirrored(*ranks[2]->service->Mirrored(Step(4))), JoinMirrored(Objects(2)));
}

TEST(Snapshots, OfDeviceMemoryThatNobodyHandedOverAreRefused) {
  StateRegistry registry;
  ASSERT_TRUE(registry
                  .AddTensor({.key = "d",
                              .global_shape = {4},
                              .local_shape = {4},
                              .global_offset = {0},
                              .memory = {.data = reinterpret_cast<void*>(64),
                                         .size_bytes = 16,
                                         .kind = MemoryKind::kDevice,
                                         .device = 0}})
                  .ok());
  Snapshots snapshots(registry, [](Step) { return std::vector<uint8_t>(); });
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<SnapshotReport> report;
  SnapshotService::Session session;
  session.generation = Generation(1);
  session.store = std::make_shared<MemoryStore>();
  session.limit = 5s;
  session.unchanged = [](Step) { return true; };
  session.report = [&](SnapshotReport r) {
    std::lock_guard lock(mutex);
    report = std::move(r);
    changed.notify_all();
  };
  snapshots.Prepare(session, {Step(1), Step(), Rank(-1), {}});
  snapshots.Take(Step(1));
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, 20s, [&] { return report.has_value(); }));
  }
  EXPECT_EQ(report->code, StatusCode::kFailedPrecondition);
  EXPECT_NE(report->text.find("SetDeviceMemory"), std::string::npos);
  snapshots.Stop();
}

}  // namespace
}  // namespace kintsugi
