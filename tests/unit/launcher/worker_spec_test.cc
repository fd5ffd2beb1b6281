// What the processes of a host are started with.
#include "runtime/launcher/workers/worker_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Pair;

// Node 1 of two, with two ranks on each.
WorkerPoolOptions Options() {
  return {.job = "job",
          .program = "train",
          .args = {"--fast"},
          .environment = {{"MINE", "1"}, {"RANK", "not this"}},
          .world_size = 4,
          .first_rank = Rank(2),
          .local_ranks = 2,
          .node_rank = 1};
}
const WorkerShares kShares{.mark = "job.1.77", .secret_fd = 5, .device_fd = 6};

std::vector<std::string> PassedAs(const ProcessSpec& spec) {
  std::vector<std::string> names;
  for (const PassedFd& passed : spec.passed_fds) names.push_back(std::to_string(passed.fd) + ":" + passed.variable);
  return names;
}

TEST(WorkerSpec, ARanksProcessKnowsItsPlaceAsTorchrunTellsIt) {
  const ProcessSpec spec = RankSpec(Options(), kShares, {Rank(3), Incarnation(2)}, 7);
  EXPECT_EQ(spec.program, "train");
  EXPECT_THAT(spec.environment,
              IsSupersetOf({Pair("RANK", "3"), Pair("LOCAL_RANK", "1"), Pair("NODE_RANK", "1"), Pair("GROUP_RANK", "1"),
                            Pair("WORLD_SIZE", "4"), Pair("LOCAL_WORLD_SIZE", "2"), Pair("GROUP_WORLD_SIZE", "2"),
                            Pair("TORCHELASTIC_RESTART_COUNT", "1"), Pair("KINTSUGI_INCARNATION", "2"),
                            Pair("KINTSUGI_DEVICE", "7"), Pair("KINTSUGI_LAUNCHER", "job.1.77"), Pair("MINE", "1")}));
}

TEST(WorkerSpec, ASpareKnowsNoRankAndInheritsNone) {
  const ProcessSpec spec = CommonSpec(Options(), kShares);
  for (const char* name : {"LOCAL_RANK", "ROLE_RANK", "KINTSUGI_INCARNATION", "KINTSUGI_DEVICE"}) {
    EXPECT_THAT(spec.environment, Not(Contains(Pair(name, testing::_)))) << name;
    EXPECT_THAT(spec.unset_environment, Contains(name));
  }
  EXPECT_THAT(spec.environment, Contains(Pair("NODE_RANK", "1")));
}

// Whose block a spare node will take is not known when its processes begin.
TEST(WorkerSpec, OnASpareNodeNobodyKnowsItsNode) {
  WorkerPoolOptions options = Options();
  options.has_ranks = false;
  const ProcessSpec spec = CommonSpec(options, kShares);
  for (const char* name : {"NODE_RANK", "GROUP_RANK"}) {
    EXPECT_THAT(spec.environment, Not(Contains(Pair(name, testing::_)))) << name;
    EXPECT_THAT(spec.unset_environment, Contains(name));
  }
}

TEST(WorkerSpec, OnlyTheWarmProcessIsWithoutTheSecret) {
  WorkerShares shares = kShares;
  EXPECT_THAT(PassedAs(CommonSpec(Options(), shares)),
              testing::ElementsAre("5:KINTSUGI_SECRET_FD", "6:KINTSUGI_DEVICE_FD"));
  shares.warm_list_fd = 8;
  EXPECT_THAT(PassedAs(CommonSpec(Options(), shares)), Contains("8:KINTSUGI_WARM_FD"));
  WorkerPoolOptions options = Options();
  options.warm_args = {"--warm"};
  const ProcessSpec warm = WarmSpec(options, shares, 10, 11);
  EXPECT_THAT(PassedAs(warm), testing::ElementsAre("10:KINTSUGI_FORK_FD", "11:KINTSUGI_WARM_FD"));
  EXPECT_THAT(warm.args, testing::ElementsAre("--warm"));
}

}  // namespace
}  // namespace kintsugi
