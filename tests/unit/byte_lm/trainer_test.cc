// The stages of a step across data-parallel ranks: sharding, replicas, repeats.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "tests/unit/byte_lm/cluster.h"

namespace kintsugi::byte_lm {
namespace {

TEST(Trainer, TwoRunsGiveTheSameBits) {
  Cluster a(TinyOptions(), Text(), 4, 1, 2), b(TinyOptions(), Text(), 4, 1, 2);
  const auto losses_a = a.Train(1, 5), losses_b = b.Train(1, 5);
  ASSERT_TRUE(losses_a.ok() && losses_b.ok());
  EXPECT_EQ(*losses_a, *losses_b);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(a[rank].StateDigest(), b[rank].StateDigest()) << "rank " << rank;
}

TEST(Trainer, AnotherSeedGivesOtherBits) {
  TrainerOptions options = TinyOptions();
  Cluster a(options, Text(), 1, 1, 1);
  options.train.seed = 2;
  Cluster b(options, Text(), 1, 1, 1);
  EXPECT_FALSE(a[0].StateDigest() == b[0].StateDigest());
}

TEST(Trainer, ReplicasAreBitEqualAndShardsDiffer) {
  Cluster world(TinyOptions(), Text(), 4, 1, 2);
  ASSERT_TRUE(world.Train(1, 5).ok());
  EXPECT_EQ(world[0].StateDigest(), world[2].StateDigest());
  EXPECT_EQ(world[1].StateDigest(), world[3].StateDigest());
  EXPECT_FALSE(world[0].StateDigest() == world[1].StateDigest());
  for (int rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(world[0].ParametersDigest(), world[rank].ParametersDigest());
    EXPECT_EQ(world[0].loss(), world[rank].loss());
  }
}

TEST(Trainer, ShardedTrainingMatchesOneRankWithTheSameGlobalBatch) {
  TrainerOptions options = TinyOptions();
  // Masks and windows belong to places in the global batch, not to ranks: both worlds have the same.
  ASSERT_GT(options.model.dropout, 0);
  Cluster sharded(options, Text(), 4, 1, 2);
  options.train.batch *= 4;
  Cluster whole(options, Text(), 1, 1, 1);
  const auto losses = sharded.Train(1, 6), expected = whole.Train(1, 6);
  ASSERT_TRUE(losses.ok() && expected.ok());
  for (size_t i = 0; i < losses->size(); ++i) EXPECT_NEAR((*losses)[i], (*expected)[i], 1e-4) << "step " << i + 1;
  EXPECT_NEAR(sharded[0].gradient_norm(), whole[0].gradient_norm(), 1e-3 * whole[0].gradient_norm());
  double squared = 0, total = 0;
  const ParameterTable& table = whole[0].table();
  for (const Parameter& p : table.parameters()) {
    for (size_t i = p.offset; i < p.offset + p.count; ++i) {
      squared += std::pow(sharded[3].parameters()[i] - whole[0].parameters()[i], 2);
      total += std::pow(whole[0].parameters()[i], 2);
    }
  }
  EXPECT_LT(std::sqrt(squared / total), 1e-3);
}

TEST(Trainer, AnAbandonedStepRunsAgainToTheSameBits) {
  Cluster straight(TinyOptions(), Text(), 4, 1, 2), disturbed(TinyOptions(), Text(), 4, 1, 2);
  ASSERT_TRUE(straight.Train(1, 4).ok());
  ASSERT_TRUE(disturbed.Train(1, 2).ok());
  // Step 3 is given up after a different stage on every rank; only the dropout generator has to be put back.
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<uint8_t> captured;
    disturbed[rank].dropout().Capture(&captured);
    if (rank >= 1) {
      ASSERT_TRUE(disturbed[rank].Forward(Step(3)).ok());
    }
    if (rank >= 2) {
      ASSERT_TRUE(disturbed[rank].Backward().ok());
    }
    ASSERT_TRUE(disturbed[rank].dropout().Restore(captured.data(), captured.size()).ok());
  }
  ASSERT_TRUE(disturbed.Train(3, 4).ok());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(straight[rank].StateDigest(), disturbed[rank].StateDigest());
}

TEST(Trainer, ParametersAreDerivedFromTheMasters) {
  Cluster world(TinyOptions(), Text(), 4, 1, 2);
  ASSERT_TRUE(world.Train(1, 3).ok());
  const Digest before = world[0].ParametersDigest();
  for (const Status& status : world.Each([](Trainer& trainer) { return trainer.SyncParameters(); })) {
    ASSERT_TRUE(status.ok());
  }
  EXPECT_EQ(world[0].ParametersDigest(), before);
}

TEST(Trainer, StateOfAReplicaAndTheDropoutStateMakeAReplacementComplete) {
  Cluster straight(TinyOptions(), Text(), 4, 1, 2), repaired(TinyOptions(), Text(), 4, 1, 2);
  ASSERT_TRUE(straight.Train(1, 5).ok());
  ASSERT_TRUE(repaired.Train(1, 3).ok());
  std::vector<uint8_t> mirrored;
  repaired[0].dropout().Capture(&mirrored);
  repaired[0].Reinitialize();
  // Rank 2 holds the same shard.
  const std::vector<ShardedTensor> to = repaired[0].StateTensors(), from = repaired[2].StateTensors();
  ASSERT_EQ(to.size(), from.size());
  for (size_t i = 0; i < to.size(); ++i) {
    ASSERT_EQ(to[i].key, from[i].key);
    std::memcpy(to[i].memory.data, from[i].memory.data, to[i].memory.size_bytes);
  }
  const ShardedObject object = repaired[0].DropoutObject();
  ASSERT_TRUE(object.restore(object.context, mirrored.data(), mirrored.size()).ok());
  for (const Status& status : repaired.Each([](Trainer& trainer) { return trainer.SyncParameters(); })) {
    ASSERT_TRUE(status.ok());
  }
  ASSERT_TRUE(repaired.Train(4, 5).ok());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(straight[rank].StateDigest(), repaired[rank].StateDigest());
}

TEST(Trainer, AFailedGroupEndsEveryStageWithItsOwnStatus) {
  Cluster world(TinyOptions(), Text(), 4, 1, 2);
  world.group("dp", {0, 1, 2, 3}).Break();
  world.group("shard", {0, 1}).Break();
  ASSERT_TRUE(world[0].Forward(Step(1)).ok());
  ASSERT_TRUE(world[0].Backward().ok());
  EXPECT_EQ(world[0].SyncGradients().code(), StatusCode::kCommFailure);
  EXPECT_EQ(world[0].SyncNorm().code(), StatusCode::kCommFailure);
  EXPECT_EQ(world[0].SyncParameters().code(), StatusCode::kCommFailure);
}

TEST(Trainer, StateLiesWhereTheAllocatorPutIt) {
  std::map<std::string, AlignedBuffer<float>> memory;
  TrainerOptions options = TinyOptions();
  options.allocate_state = [&](const std::string& name, size_t count) -> Result<float*> {
    memory[name] = AlignedBuffer<float>(count);
    return memory[name].data();
  };
  const auto trainer = Trainer::Create(options, Text());
  ASSERT_TRUE(trainer.ok()) << trainer.status().ToString();
  ASSERT_EQ(memory.size(), 3u);
  EXPECT_EQ((*trainer)->optimizer().state().master, memory["master"].data());
  EXPECT_EQ((*trainer)->optimizer().state().exp_avg, memory["exp_avg"].data());
  EXPECT_EQ((*trainer)->optimizer().state().exp_avg_sq, memory["exp_avg_sq"].data());
  EXPECT_EQ(memory["master"].size(), (*trainer)->optimizer().range().size());
}

TEST(Trainer, AnAllocatorsFailureIsReturned) {
  TrainerOptions options = TinyOptions();
  options.allocate_state = [](const std::string& name, size_t) -> Result<float*> {
    return Status(StatusCode::kResourceExhausted, "no memory for " + name);
  };
  EXPECT_EQ(Trainer::Create(options, Text()).status().code(), StatusCode::kResourceExhausted);
}

TEST(Trainer, ANormThatIsNotFiniteSkipsTheUpdateEverywhere) {
  Cluster world(TinyOptions(), Text(), 2, 1, 2);
  ASSERT_TRUE(world.Train(1, 2).ok());
  const Digest before[2] = {world[0].StateDigest(), world[1].StateDigest()};
  const std::vector<Status> statuses = world.Each([](Trainer& trainer) {
    KINTSUGI_RETURN_IF_ERROR(trainer.Forward(Step(3)));
    KINTSUGI_RETURN_IF_ERROR(trainer.Backward());
    if (trainer.layout().dp_rank == 1) const_cast<float*>(trainer.gradients())[3] = INFINITY;
    KINTSUGI_RETURN_IF_ERROR(trainer.SyncGradients());
    KINTSUGI_RETURN_IF_ERROR(trainer.SyncNorm());
    for (size_t i = 0; i < trainer.piece_count(); ++i) trainer.UpdatePiece(i);
    return trainer.SyncParameters();
  });
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(statuses[static_cast<size_t>(rank)].ok());
    EXPECT_TRUE(world[rank].skips_update());
    EXPECT_EQ(world[rank].StateDigest(), before[rank]);
  }
  ASSERT_TRUE(world.Train(4, 4).ok());
  EXPECT_FALSE(world[0].skips_update());
}

TEST(Trainer, SamplesOfAStepAreSharedOutWithoutOverlap) {
  Cluster world(TinyOptions(), Text(), 4, 1, 2);
  std::set<uint64_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(world[rank].Forward(Step(1)).ok());
    for (uint64_t id : world[rank].sample_ids()) EXPECT_TRUE(seen.insert(id).second) << "sample " << id;
  }
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(world[0].GlobalTokensPerStep(), 8 * 16);
}

}  // namespace
}  // namespace kintsugi::byte_lm
