#include "integrations/examples/byte_lm/adam_shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "integrations/examples/byte_lm/initialize.h"
#include "runtime/base/random.h"

namespace kintsugi::byte_lm {
namespace {

struct Shard {
  Shard(const TrainConfig& config, const ParameterTable& table, int shard)
      : master(table.ShardRange(0).size()), exp_avg(master.size()), exp_avg_sq(master.size()),
        adam(config, table, shard, {master.data(), exp_avg.data(), exp_avg_sq.data()}) {}
  AlignedBuffer<float> master, exp_avg, exp_avg_sq;
  AdamShard adam;
};

AlignedBuffer<float> RandomGradients(const ParameterTable& table, uint64_t seed) {
  AlignedBuffer<float> gradients(table.flat_size());
  Random random(seed);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(random.Unit() - 0.5);
  return gradients;
}

TEST(AdamShard, PiecesOfAllShardsCoverEveryParameterElementOnce) {
  for (int shards : {1, 2, 3, 8}) {
    const ParameterTable table(ModelConfig{}, 0, 1, shards);
    std::vector<int> covered(table.flat_size(), 0);
    for (int s = 0; s < shards; ++s) {
      Shard shard(TrainConfig{}, table, s);
      EXPECT_GE(shard.adam.pieces().size(), AdamShard::kPiecesMin);
      for (const UpdatePiece& piece : shard.adam.pieces()) {
        const Parameter& p = table[piece.parameter];
        EXPECT_EQ(piece.flat_begin, p.offset + piece.local_begin);
        EXPECT_EQ(piece.flat_begin, table.ShardRange(s).begin + piece.state_begin);
        EXPECT_LE(piece.local_begin + piece.count, p.count);
        for (size_t i = 0; i < piece.count; ++i) ++covered[piece.flat_begin + i];
      }
    }
    for (const Parameter& p : table.parameters()) {
      for (size_t i = p.offset; i < p.offset + p.count; ++i) ASSERT_EQ(covered[i], 1) << p.name;
    }
  }
}

TEST(AdamShard, UpdateMatchesTheTextbookInDoublePrecision) {
  TrainConfig config;
  config.weight_decay = 0.1;
  const ParameterTable table(ModelConfig{}, 0, 1, 2);
  AlignedBuffer<float> parameters(table.flat_size());
  InitializeParameters(table, 1, parameters.data());
  Shard shard(config, table, 1);
  shard.adam.Initialize(parameters.data());
  const UpdatePiece& piece = shard.adam.pieces().front();
  const bool decays = table[piece.parameter].local_shape.size() == 2;
  double weight = parameters[piece.flat_begin], mean = 0, square = 0;
  for (int64_t step = 1; step <= 5; ++step) {
    const AlignedBuffer<float> gradients = RandomGradients(table, static_cast<uint64_t>(step));
    const UpdateScalars scalars{step, 0.01, 0.5};
    for (size_t i = 0; i < shard.adam.pieces().size(); ++i) shard.adam.Update(i, scalars, gradients.data());
    const double g = 0.5 * gradients[piece.flat_begin];
    mean = config.beta1 * mean + (1 - config.beta1) * g;
    square = config.beta2 * square + (1 - config.beta2) * g * g;
    const double corrected = mean / (1 - std::pow(config.beta1, static_cast<double>(step)));
    const double root = std::sqrt(square / (1 - std::pow(config.beta2, static_cast<double>(step))));
    weight -= 0.01 * (corrected / (root + config.epsilon) + (decays ? config.weight_decay : 0.0) * weight);
    EXPECT_NEAR(shard.master[piece.state_begin], weight, 1e-6) << "step " << step;
  }
  EXPECT_TRUE(decays) << "the first piece of the second shard was expected to be a matrix";
}

TEST(AdamShard, PiecesInAnyOrderGiveTheSameBits) {
  const ParameterTable table(ModelConfig{}, 0, 1, 2);
  AlignedBuffer<float> parameters(table.flat_size());
  InitializeParameters(table, 1, parameters.data());
  const AlignedBuffer<float> gradients = RandomGradients(table, 3);
  Shard up(TrainConfig{}, table, 0), down(TrainConfig{}, table, 0);
  up.adam.Initialize(parameters.data());
  down.adam.Initialize(parameters.data());
  const size_t count = up.adam.pieces().size();
  for (size_t i = 0; i < count; ++i) {
    up.adam.Update(i, {1, 0.01, 1.0}, gradients.data());
    down.adam.Update(count - 1 - i, {1, 0.01, 1.0}, gradients.data());
  }
  for (size_t i = 0; i < up.master.size(); ++i) ASSERT_EQ(up.master[i], down.master[i]);
}

TEST(AdamShard, ElementsOutsideAnyParameterStayZero) {
  ModelConfig config;
  config.width = 12;  // no multiple of the alignment: gaps behind most parameters
  const ParameterTable table(config, 0, 1, 3);
  AlignedBuffer<float> ones(table.flat_size());
  std::fill_n(ones.data(), ones.size(), 1.0f);
  for (int s = 0; s < 3; ++s) {
    Shard shard(TrainConfig{}, table, s);
    shard.adam.Initialize(ones.data());
    for (size_t i = 0; i < shard.adam.pieces().size(); ++i) shard.adam.Update(i, {1, 0.01, 1.0}, ones.data());
    std::vector<bool> owned(shard.master.size(), false);
    for (const UpdatePiece& piece : shard.adam.pieces()) {
      for (size_t i = 0; i < piece.count; ++i) owned[piece.state_begin + i] = true;
    }
    for (size_t i = 0; i < owned.size(); ++i) {
      EXPECT_EQ(shard.master[i] != 0.0f, owned[i]) << "shard " << s << " element " << i;
    }
  }
}

TEST(AdamShard, SquaresOfAllRanksCountEveryElementOnce) {
  ModelConfig config;
  const ParameterTable whole(config, 0, 1, 1);
  AlignedBuffer<float> ones(whole.flat_size());
  std::fill_n(ones.data(), ones.size(), 1.0f);
  double expected = 0;
  for (const Parameter& p : whole.parameters()) expected += static_cast<double>(p.count);
  double total = 0;
  for (int tp = 0; tp < 2; ++tp) {
    const ParameterTable table(config, tp, 2, 3);
    for (int s = 0; s < 3; ++s) total += Shard(TrainConfig{}, table, s).adam.SumOfSquares(ones.data());
  }
  EXPECT_DOUBLE_EQ(total, expected);
}

TEST(ClipScale, LimitsTheNormAndLeavesSmallOnesAlone) {
  EXPECT_EQ(ClipScale(0.5, 1.0), 1.0);
  EXPECT_EQ(ClipScale(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipScale(4.0, 1.0), 0.25);
  EXPECT_EQ(ClipScale(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace kintsugi::byte_lm
