// Trainers whose state lies on the fake device, joined by NCCL's fake: the same network as on the host, the same bits
// on every run, and collectives that an abort ends.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "integrations/examples/byte_lm/device/nccl_process_groups.h"
#include "tests/support/memory_store.h"
#include "tests/unit/byte_lm/cluster.h"
#include "tests/unit/byte_lm/emulated_device.h"

namespace kintsugi::byte_lm::device {
namespace {

using namespace std::chrono_literals;

// A world of ranks on one device, a thread each.
class DeviceWorld {
 public:
  DeviceWorld(TrainerOptions options, int world_size, int tp_size, int replicas) {
    for (int rank = 0; rank < world_size; ++rank) {
      auto one = std::make_unique<One>();
      one->session = OpenEmulated().value();
      one->layout = RankLayout::Of(rank, world_size, tp_size, replicas).value();
      options.layout = one->layout;
      options.compute = &one->session->compute();
      options.allocate_state = [session = one->session.get()](const std::string&, size_t count) {
        return session->AllocateState(count);
      };
      one->groups = std::make_unique<NcclProcessGroups>(one->layout, one->session->nccl(), one->session->compute());
      one->trainer = std::move(Trainer::Create(options, Text())).value();
      ranks_.push_back(std::move(one));
    }
  }

  Status Connect(uint64_t generation) {
    return Each([&](int rank) {
      CancelToken cancel;
      HandlerContext call;
      call.rank = Rank(rank);
      call.world_size = static_cast<int>(ranks_.size());
      call.generation = Generation(generation);
      call.deadline = SteadyClock::SteadyNow() + 60s;
      call.cancel = &cancel;
      call.store = &store_;
      KINTSUGI_RETURN_IF_ERROR(groups(rank).Connect(call));
      (*this)[rank].SetGroups(groups(rank).groups());
      return Status::Ok();
    });
  }

  // The first failure of any rank.
  Status Each(const std::function<Status(int)>& work) {
    std::vector<Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      threads.emplace_back([&, rank] { statuses[rank] = work(static_cast<int>(rank)); });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) KINTSUGI_RETURN_IF_ERROR(status);
    return Status::Ok();
  }

  Status Train(uint64_t first, uint64_t last) {
    return Each([&](int rank) {
      for (uint64_t step = first; step <= last; ++step) {
        KINTSUGI_RETURN_IF_ERROR(RunStep((*this)[rank], Step(step)));
        KINTSUGI_RETURN_IF_ERROR((*this)[rank].FinishUpdate());
      }
      return Status::Ok();
    });
  }

  Trainer& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]->trainer; }
  NcclProcessGroups& groups(int rank) { return *ranks_[static_cast<size_t>(rank)]->groups; }
  DeviceCompute& compute(int rank) { return ranks_[static_cast<size_t>(rank)]->session->compute(); }

 private:
  struct One {
    std::unique_ptr<DeviceSession> session;
    RankLayout layout;
    std::unique_ptr<Trainer> trainer;
    std::unique_ptr<NcclProcessGroups> groups;  // ends before the trainer and the session
  };
  MemoryStore store_;
  std::vector<std::unique_ptr<One>> ranks_;
};

TEST(DeviceTrainer, IsTheSameNetworkAsOnTheHost) {
  struct World {
    int size, tensor_parallel, replicas;
  };
  for (const World& w : {World{1, 1, 1}, World{4, 2, 2}, World{4, 1, 2}}) {
    Cluster host(TinyOptions(), Text(), w.size, w.tensor_parallel, w.replicas);
    DeviceWorld device(TinyOptions(), w.size, w.tensor_parallel, w.replicas);
    ASSERT_TRUE(device.Connect(1).ok());
    for (int rank = 0; rank < w.size; ++rank)
      EXPECT_EQ(device[rank].ParametersDigest(), host[rank].ParametersDigest()) << "step 0 is a function of the seed";
    const auto losses = host.Train(1, 5);
    ASSERT_TRUE(losses.ok());
    const Status trained = device.Train(1, 5);
    ASSERT_TRUE(trained.ok()) << trained.ToString();
    for (int rank = 0; rank < w.size; ++rank) {
      EXPECT_NEAR(device[rank].loss(), losses->back(), 1e-4) << "rank " << rank << " of " << w.size;
      EXPECT_NEAR(device[rank].gradient_norm(), host[rank].gradient_norm(), 2e-3 * host[rank].gradient_norm());
      EXPECT_EQ(device[rank].loss(), device[0].loss());
    }
  }
}

TEST(DeviceTrainer, GivesTheSameBitsOnEveryRunAndOnEveryReplica) {
  DeviceWorld one(TinyOptions(), 4, 1, 2), two(TinyOptions(), 4, 1, 2);
  for (DeviceWorld* world : {&one, &two}) {
    ASSERT_TRUE(world->Connect(1).ok());
    ASSERT_TRUE(world->Train(1, 4).ok());
  }
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(one[rank].StateDigest(), two[rank].StateDigest()) << "rank " << rank;
  EXPECT_EQ(one[0].StateDigest(), one[2].StateDigest());
  EXPECT_EQ(one[1].StateDigest(), one[3].StateDigest());
  EXPECT_FALSE(one[0].StateDigest() == one[1].StateDigest());
}

// What an incident does: abort, clean, rebuild, parameters from the masters, and the step once more.
TEST(DeviceTrainer, AnAbortedStepRunsAgainInTheNextGenerationToTheSameBits) {
  DeviceWorld straight(TinyOptions(), 4, 2, 2), struck(TinyOptions(), 4, 2, 2);
  ASSERT_TRUE(straight.Connect(1).ok() && struck.Connect(1).ok());
  ASSERT_TRUE(straight.Train(1, 4).ok());
  ASSERT_TRUE(struck.Train(1, 2).ok());
  std::vector<std::vector<uint8_t>> dropout(4);
  for (int rank = 0; rank < 4; ++rank) struck[rank].dropout().Capture(&dropout[static_cast<size_t>(rank)]);
  // Rank 3 never comes; the others stand inside a collective until they are aborted.
  std::vector<Status> left(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] { left[static_cast<size_t>(rank)] = RunStep(struck[rank], Step(3)); });
  std::this_thread::sleep_for(50ms);
  for (int rank = 0; rank < 4; ++rank) struck.groups(rank).Abort();
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : left) EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.ToString();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(struck.groups(rank).Destroy(SteadyClock::SteadyNow() + 30s).ok());
  ASSERT_TRUE(struck.Connect(2).ok());
  for (int rank = 0; rank < 4; ++rank)
    ASSERT_TRUE(struck[rank].dropout().Restore(dropout[static_cast<size_t>(rank)].data(), 16).ok());
  ASSERT_TRUE(struck.Each([&](int rank) { return struck[rank].SyncParameters(); }).ok());
  ASSERT_TRUE(struck.Train(3, 4).ok());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(straight[rank].StateDigest(), struck[rank].StateDigest());
}

TEST(NcclCollectives, SumsInRankOrderWhateverTheCount) {
  constexpr int kRanks = 3;
  DeviceWorld world(TinyOptions(), kRanks, 1, 1);
  ASSERT_TRUE(world.Connect(1).ok());
  for (size_t count : {1u, 16u, 17u, 33u, 1000u}) {
    // Numbers whose sum depends on the order.
    std::vector<std::vector<float>> parts;
    std::vector<float> expected(count);
    for (int rank = 0; rank < kRanks; ++rank) {
      Random random(static_cast<uint64_t>(rank) + count);
      parts.emplace_back(count);
      for (float& value : parts.back())
        value = static_cast<float>((random.Unit() - 0.5) * std::pow(10, random.Below(8)));
      for (size_t i = 0; i < count; ++i) expected[i] = rank == 0 ? parts[0][i] : expected[i] + parts.back()[i];
    }
    const Status summed = world.Each([&](int rank) {
      DeviceCompute& compute = world.compute(rank);
      ComputeArray<float> data(compute, count);
      compute.Upload(data.data(), parts[static_cast<size_t>(rank)].data(), count * sizeof(float));
      KINTSUGI_RETURN_IF_ERROR(world.groups(rank).groups().data_parallel->AllReduceSum(data.data(), count));
      std::vector<float> got(count);
      KINTSUGI_RETURN_IF_ERROR(compute.Download(got.data(), data.data(), count * sizeof(float)));
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), count * sizeof(float)), 0) << "rank " << rank << ", " << count;
      return Status::Ok();
    });
    EXPECT_TRUE(summed.ok()) << summed.ToString();
  }
}

TEST(NcclCollectives, GathersDeviceAndHostMemoryInRankOrder) {
  constexpr int kRanks = 3;
  DeviceWorld world(TinyOptions(), kRanks, 1, 1);
  ASSERT_TRUE(world.Connect(1).ok());
  const Status gathered = world.Each([&](int rank) -> Status {
    Collectives& group = *world.groups(rank).groups().data_parallel;
    KINTSUGI_ASSIGN_OR_RETURN(const double sum, GatherSum(group, 1.5 * rank));
    EXPECT_EQ(sum, 4.5);
    DeviceCompute& compute = world.compute(rank);
    ComputeArray<float> mine(compute, 5), all(compute, 15);
    compute.Fill(5, static_cast<float>(rank), mine.data());
    KINTSUGI_RETURN_IF_ERROR(group.AllGather(mine.data(), 5, all.data()));
    std::vector<float> got(15);
    KINTSUGI_RETURN_IF_ERROR(compute.Download(got.data(), all.data(), sizeof(float) * got.size()));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(i / 5));
    return world.groups(rank).Barrier();
  });
  EXPECT_TRUE(gathered.ok()) << gathered.ToString();
}

}  // namespace
}  // namespace kintsugi::byte_lm::device
