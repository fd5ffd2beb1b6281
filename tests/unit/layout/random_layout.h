// Random layouts for tests: small tensors cut in every way, right ones and wrong ones.
#pragma once

#include <utility>
#include <vector>

#include "replica/layout/box.h"
#include "replica/layout/builder.h"
#include "runtime/base/random.h"

namespace kintsugi::layout {

struct RankShard {
  int32_t rank = 0;
  ShardedTensor tensor;
};

struct LayoutOptions {
  int axes_max = 6;
  int64_t length_max = 5;
  int64_t elements_max = 200;
  int32_t ranks = 6;
  // Chance that the layout is changed afterwards, which mostly makes it wrong.
  double change = 0.5;
};

// Boxes that tile the whole exactly: a grid or cuts at random places, down to single elements and zero sizes.
std::vector<Box> RandomTiling(const Box& whole, int pieces_max, Random& random);

// One tensor, tiled, flattened in part, copied to other ranks.
std::vector<RankShard> RandomLayout(const std::string& key, const LayoutOptions& options, Random& random);

ShardedTensor TensorAt(const std::string& key, const Box& whole, const Box& box, std::vector<int64_t> replica_id = {});

// Metadata over all shards in one go, and merged from lists of single ranks.
Metadata BuildAll(const std::vector<RankShard>& shards);
std::vector<Metadata> BuildPerRank(const std::vector<RankShard>& shards, int32_t ranks);

Shape RandomShape(int axes, int64_t length_max, int64_t elements_max, Random& random);

}  // namespace kintsugi::layout
