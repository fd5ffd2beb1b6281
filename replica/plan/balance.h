// Loads of ranks: giving out shards in an order, and improving the result (private to this folder).
#pragma once

#include "replica/plan/distribute.h"

namespace kintsugi::plan {

// Each shard, in this order, goes to its holder with the smallest (load, rank). REQUIRES: as Distribute checks.
Assignment AssignInOrder(const SharedShards& shards, int32_t ranks, const std::vector<uint32_t>& order);

int64_t LargestLoad(const Assignment& assignment);

// Lowers the largest load by moves, exchanges and chains of two shards until none helps, or the steps are used up.
void Refine(const SharedShards& shards, Assignment* assignment);

}  // namespace kintsugi::plan
