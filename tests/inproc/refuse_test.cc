// Steps that are refused before anything changes: left out where their data is to blame, and who gives way where a machine is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tests/inproc/world.h"

namespace kintsugi::inproc {
namespace {

constexpr int kRanks = 4, kShards = 2;
constexpr uint64_t kSteps = 6;

uint64_t Advance(uint64_t state) { return state * 6364136223846793005ull + 1442695040888963407ull; }

// The toy trainer's numbers by a plain loop: weights, then momentum, of each rank.
std::vector<std::vector<float>> Plainly(const std::set<uint64_t>& without) {
  constexpr size_t kCount = ToyTrainer::kCount;
  std::vector<std::vector<float>> state(kRanks, std::vector<float>(2 * kCount));
  std::vector<uint64_t> rng;
  for (int r = 0; r < kRanks; ++r) {
    rng.push_back(1000u + static_cast<uint64_t>(r));
    for (size_t i = 0; i < kCount; ++i)
      state[r][i] = 0.01f * static_cast<float>(100 * (r % kShards) + static_cast<int>(i));
  }
  for (uint64_t k = 1; k <= kSteps; ++k) {
    if (without.count(k)) continue;
    std::vector<float> sum(kCount);
    for (int r = 0; r < kRanks; ++r)
      for (size_t i = 0; i < kCount; ++i) {
        rng[r] = Advance(rng[r]);
        const float noise = static_cast<float>(rng[r] >> 40) / static_cast<float>(1 << 24);
        sum[i] += 0.001f * state[r][i] + 0.01f * noise + 0.001f * static_cast<float>(k);
      }
    const float rate = 0.1f / std::sqrt(static_cast<float>(k));
    for (int r = 0; r < kRanks; ++r)
      for (size_t i = 0; i < kCount; ++i) {
        state[r][kCount + i] = 0.9f * state[r][kCount + i] + sum[i];
        state[r][i] -= rate * state[r][kCount + i];
      }
  }
  return state;
}

void ExpectState(World& world, const std::set<uint64_t>& without) {
  world.WaitAll();
  ASSERT_TRUE(world.ended().has_value());
  EXPECT_EQ(world.ended()->exit_code, 0) << world.ended()->text;
  const auto expected = Plainly(without);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> found = world.trainer(rank).State();
    ASSERT_EQ(found.size(), expected[static_cast<size_t>(rank)].size()) << "rank " << rank;
    EXPECT_EQ(std::memcmp(found.data(), expected[static_cast<size_t>(rank)].data(), found.size() * sizeof(float)), 0)
        << "rank " << rank << " holds other bits";
  }
}

// `is_bad`: of a rank, in a step, as it is made for the nth time.
struct Refusing {
  std::function<bool(int rank, uint64_t step, int time)> is_bad;
  int most = 10;
  bool allow = true;
  std::map<std::pair<int, uint64_t>, int> made{};
  std::mutex mutex{};

  int Count(int rank, Step step) {
    std::lock_guard lock(mutex);
    return ++made[{rank, step.value()}];
  }

  WorldOptions Options() {
    WorldOptions options;
    Tweaks tweaks;
    tweaks.after_registration = [this](ToyTrainer& trainer) {
      return allow ? trainer.agent().AllowRejects(most) : Status::Ok();
    };
    tweaks.given = [this](ToyTrainer& trainer, Step step, std::vector<float>* gradient) -> Status {
      const int time = Count(trainer.rank(), step);
      const bool bad = is_bad(trainer.rank(), step.value(), time);
      if (bad) gradient->front() = std::numeric_limits<float>::quiet_NaN();
      return trainer.agent().BeginCollective(
          {reinterpret_cast<uint8_t*>(gradient->data()), gradient->size() * sizeof(float)});
    };
    tweaks.summed = [](ToyTrainer& trainer, Step step, const std::vector<float>& gradient) -> Status {
      return std::isnan(gradient.front()) ? trainer.agent().Reject(step, "no number") : Status::Ok();
    };
    options.tweaks[-1] = tweaks;
    return options;
  }
};

TEST(PlainLoop, HasTheBitsOfTheToyTrainer) {
  World world;
  world.RunAll();
  ExpectState(world, {});
}

TEST(Reject, BadDataIsLeftOutAndTheRunNeverHadIt) {
  Refusing refusing{[](int rank, uint64_t step, int) { return (rank == 1 && step == 3) || (rank == 2 && step == 4); }};
  World world(refusing.Options());
  world.RunAll();
  ExpectState(world, {3, 4});
  EXPECT_EQ(world.incidents().size(), 4u) << world.Story();
  for (const auto& incident : world.incidents()) EXPECT_EQ(incident.rung, Rung::kRetry);
}

TEST(Reject, TheLastStepOfAllIsLeftOut) {
  Refusing refusing{[](int rank, uint64_t step, int) { return rank == 0 && step == kSteps; }};
  World world(refusing.Options());
  world.RunAll();
  ExpectState(world, {kSteps});
}

TEST(Reject, AMachineThatComputedWronglyOnceGivesWayAndTheStepCounts) {
  Refusing refusing{[](int rank, uint64_t step, int time) { return rank == 1 && step == 3 && time == 1; }};
  WorldOptions options = refusing.Options();
  options.max_respawns = 1;
  World world(options);
  world.StartAll();
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit)) << world.Story();
  EXPECT_EQ(world.result(1).code(), StatusCode::kEnded);
  EXPECT_NE(world.result(1).message().find("when step 3 was refused"), std::string::npos) << world.result(1).ToString();
  world.Replace(1);
  ExpectState(world, {});
  EXPECT_EQ(world.incidents().size(), 3u) << world.Story();
}

TEST(Reject, AMachineWhosePlaceNobodyMayTakeGoesOn) {
  Refusing refusing{[](int rank, uint64_t step, int time) { return rank == 1 && step == 3 && time == 1; }};
  World world(refusing.Options());
  world.RunAll();
  ExpectState(world, {});
  EXPECT_EQ(world.incidents().size(), 1u) << world.Story();
}

TEST(Reject, WhoIsReplacedWhileTheStepIsLeftOutLeavesItOutToo) {
  Refusing refusing{[](int rank, uint64_t step, int) { return rank == 1 && step == 3; }};
  World world(refusing.Options());
  world.script().Hold(2, 3, Point::kBeforeUpdate);
  world.StartAll();
  ASSERT_TRUE(world.script().AwaitReached(2, 3, Point::kBeforeUpdate));
  world.Kill(2);
  ASSERT_TRUE(world.AwaitPhase(core::Phase::kAdmit));
  world.Replace(2);
  ExpectState(world, {3});
}

TEST(Reject, MoreThanMayBeLeftOutEndsTheRunByName) {
  Refusing refusing{[](int rank, uint64_t step, int) { return rank == 1 && step >= 3; }, 1};
  World world(refusing.Options());
  world.RunAll();
  EXPECT_EQ(world.ended()->exit_code, 1);
  EXPECT_NE(world.ended()->text.find("and 1 have been left out: no more may be"), std::string::npos)
      << world.ended()->text;
}

TEST(Reject, WithoutAllowRejectsIsRefusedByName) {
  Refusing refusing{[](int rank, uint64_t step, int) { return rank == 1 && step == 3; }, 10, false};
  World world(refusing.Options());
  world.RunAll();
  EXPECT_EQ(world.ended()->exit_code, 1);
  EXPECT_NE(world.ended()->text.find("without AllowRejects"), std::string::npos) << world.ended()->text;
}

}  // namespace
}  // namespace kintsugi::inproc
