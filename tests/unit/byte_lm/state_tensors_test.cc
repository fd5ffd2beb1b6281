#include "integrations/examples/byte_lm/state_tensors.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "callbacks/state/registry.h"
#include "tests/unit/byte_lm/cluster.h"

namespace kintsugi::byte_lm {
namespace {

const TextData& Text() {
  static const TextData text = TextData::FromBytes(std::string(2000, 'x'));
  return text;
}

TEST(StateTensors, TheRegistryTakesThemAll) {
  Cluster world(TinyOptions(), Text(), 4, 2, 1);
  for (int rank = 0; rank < world.size(); ++rank) {
    StateRegistry registry;
    for (const ShardedTensor& tensor : world[rank].StateTensors()) {
      const Status status = registry.AddTensor(tensor);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_TRUE(registry.AddObject(world[rank].DropoutObject()).ok());
  }
}

TEST(StateTensors, ReplicasRegisterTheSameState) {
  Cluster world(TinyOptions(), Text(), 4, 1, 2);
  RegistrySummary summaries[2];
  for (int replica = 0; replica < 2; ++replica) {
    StateRegistry registry;
    for (const ShardedTensor& tensor : world[1 + 2 * replica].StateTensors()) {
      ASSERT_TRUE(registry.AddTensor(tensor).ok());
    }
    summaries[replica] = registry.Summary();
  }
  const Status same = CompareReplicas(0, Rank(1), summaries[0], Rank(3), summaries[1]);
  EXPECT_TRUE(same.ok()) << same.ToString();
}

TEST(StateTensors, MainCopiesOfAllRanksCoverEveryElementOnce) {
  constexpr int kWorld = 8;
  Cluster world(TinyOptions(), Text(), kWorld, 2, 2);
  std::map<std::string, int64_t> held, expected;
  for (int rank = 0; rank < kWorld; ++rank) {
    for (const ShardedTensor& tensor : world[rank].StateTensors()) {
      bool main_copy = true;
      for (int64_t part : tensor.replica_id) main_copy = main_copy && part == 0;
      if (main_copy) held[tensor.key] += tensor.ElementCount();
      int64_t elements = 1;
      for (int64_t extent : tensor.global_shape) elements *= extent;
      expected[tensor.key] = elements;
    }
  }
  EXPECT_EQ(held, expected);
  EXPECT_EQ(held.size(), 3 * world[0].table().parameters().size());
  EXPECT_TRUE(held.count("optimizer.exp_avg_sq.layers.1.mlp.down.weight"));
}

}  // namespace
}  // namespace kintsugi::byte_lm
