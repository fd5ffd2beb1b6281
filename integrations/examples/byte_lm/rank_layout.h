// RankLayout: where a rank stands among data-parallel ranks, tensor-parallel ranks and optimizer shards.
//
// Tensor-parallel ranks are neighbours (rank = dp_rank * tp_size + tp_rank), as in Megatron. The data-parallel group of
// n ranks holds `replicas` copies of the optimizer state, cut into n / replicas shards; ranks i and i + n / replicas hold
// the same shard (the layout of MindIO).
//
// Threads: a plain value.
#pragma once

#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

struct RankLayout {
  int dp_rank = 0, dp_size = 1;
  int tp_rank = 0, tp_size = 1;
  int replicas = 1;

  // Of `replicas` 0 the fewest copies, two or more, that fit the data-parallel size: a shard that is held once is lost
  // with its rank. kInvalidArgument when tp_size does not divide world_size, or replicas the data-parallel size.
  static Result<RankLayout> Of(int rank, int world_size, int tp_size, int replicas);

  // The same shards among so many ranks, each held by fewer of them or by more. kInvalidArgument as Of.
  Result<RankLayout> Among(int number, int world_size) const;
  bool operator==(const RankLayout&) const = default;

  int shards() const { return dp_size / replicas; }
  int shard() const { return dp_rank % shards(); }
  int replica() const { return dp_rank / shards(); }

  // World ranks of the groups this rank belongs to, ascending.
  std::vector<int> DataParallelGroup() const;
  std::vector<int> TensorParallelGroup() const;
  // The ranks that hold one complete copy of the optimizer state, in shard order.
  std::vector<int> ShardGroup() const;
  // The ranks that hold the same shard as this one.
  std::vector<int> ReplicaGroup() const;
};

}  // namespace kintsugi::byte_lm
