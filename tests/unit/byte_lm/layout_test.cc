// Where ranks and parameters lie.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/aligned_buffer.h"
#include "integrations/examples/byte_lm/parameter_table.h"
#include "integrations/examples/byte_lm/rank_layout.h"

namespace kintsugi::byte_lm {
namespace {

using Ranks = std::vector<int>;

TEST(RankLayout, ReplicasLieAStrideOfShardsApart) {
  const RankLayout layout = RankLayout::Of(3, 8, 1, 2).value();
  EXPECT_EQ(layout.shards(), 4);
  EXPECT_EQ(layout.shard(), 3);
  EXPECT_EQ(layout.replica(), 0);
  EXPECT_EQ(layout.ReplicaGroup(), (Ranks{3, 7}));
  EXPECT_EQ(layout.ShardGroup(), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(RankLayout::Of(6, 8, 1, 2).value().ShardGroup(), (Ranks{4, 5, 6, 7}));
}

TEST(RankLayout, TensorParallelRanksAreNeighbours) {
  const RankLayout layout = RankLayout::Of(5, 8, 2, 2).value();
  EXPECT_EQ(layout.TensorParallelGroup(), (Ranks{4, 5}));
  EXPECT_EQ(layout.DataParallelGroup(), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(layout.ReplicaGroup(), (Ranks{1, 5}));
  EXPECT_EQ(layout.ShardGroup(), (Ranks{5, 7}));
}

TEST(RankLayout, RefusesSizesThatDoNotDivide) {
  EXPECT_EQ(RankLayout::Of(0, 3, 2, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RankLayout::Of(0, 6, 2, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RankLayout::Of(4, 4, 1, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RankLayout::Of(0, 4, 0, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RankLayout::Of(0, 4, 1, -1).status().code(), StatusCode::kInvalidArgument);
}

TEST(RankLayout, UnsaidItHasTwoCopiesOrTheFewestThatFit) {
  const std::pair<int, int> copies_of[] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {9, 3}, {10, 2}, {25, 5}};
  for (const auto& [ranks, copies] : copies_of)
    EXPECT_EQ(RankLayout::Of(0, ranks, 1, 0).value().replicas, copies) << ranks;
}

TEST(ParameterTable, ParametersAreAlignedDisjointAndInsideTheBuffer) {
  ModelConfig config;
  config.width = 20;
  const ParameterTable table(config, 1, 2, 3);
  size_t end = 0;
  for (const Parameter& p : table.parameters()) {
    EXPECT_EQ(p.offset * sizeof(float) % kAlignmentBytes, 0u) << p.name;
    EXPECT_GE(p.offset, end) << p.name;
    end = p.offset + p.count;
  }
  EXPECT_LE(end, table.flat_size());
}

TEST(ParameterTable, ShardRangesAreEqualAlignedAndCoverTheBuffer) {
  for (int shards : {1, 2, 3, 7}) {
    const ParameterTable table(ModelConfig{}, 0, 1, shards);
    size_t end = 0;
    for (int s = 0; s < shards; ++s) {
      const FlatSpan range = table.ShardRange(s);
      EXPECT_EQ(range.begin, end);
      EXPECT_EQ(range.size(), table.ShardRange(0).size());
      EXPECT_EQ(range.begin * sizeof(float) % kAlignmentBytes, 0u);
      end = range.end;
    }
    EXPECT_EQ(end, table.flat_size());
  }
}

TEST(ParameterTable, TensorParallelRanksTileEverySplitParameter) {
  const ModelConfig config;
  const ParameterTable first(config, 0, 2, 1), second(config, 1, 2, 1);
  std::map<std::string, int> split_axis;
  for (size_t i = 0; i < first.parameters().size(); ++i) {
    const Parameter &a = first[i], &b = second[i];
    EXPECT_EQ(a.offset, b.offset) << a.name << ": equal places let both ranks reduce in the same order";
    for (size_t axis = 0; axis < a.global_shape.size(); ++axis) {
      if (a.local_shape[axis] == a.global_shape[axis]) continue;
      split_axis[a.name] = static_cast<int>(axis);
      EXPECT_EQ(a.local_shape[axis] + b.local_shape[axis], a.global_shape[axis]) << a.name;
      EXPECT_EQ(a.global_offset[axis], 0) << a.name;
      EXPECT_EQ(b.global_offset[axis], a.local_shape[axis]) << a.name;
    }
    EXPECT_EQ(a.replicated, split_axis.count(a.name) == 0) << a.name;
  }
  EXPECT_EQ(split_axis.size(), 6u * static_cast<size_t>(config.layers));
  EXPECT_EQ(split_axis.at("layers.0.attention.qkv.weight"), 0);
  EXPECT_EQ(split_axis.at("layers.0.attention.projection.weight"), 1);
  EXPECT_EQ(split_axis.at("layers.1.mlp.up.bias"), 0);
  EXPECT_EQ(split_axis.at("layers.1.mlp.down.weight"), 1);
}

}  // namespace
}  // namespace kintsugi::byte_lm
