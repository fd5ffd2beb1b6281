#include "integrations/examples/byte_lm/rank_layout.h"

#include <algorithm>
#include <string>

namespace kintsugi::byte_lm {
namespace {

Status Wrong(const std::string& message) { return Status(StatusCode::kInvalidArgument, "byte_lm: " + message); }

int FewestReplicas(int dp_size) {
  int replicas = std::min(2, dp_size);
  while (dp_size % replicas != 0) ++replicas;
  return replicas;
}

}  // namespace

Result<RankLayout> RankLayout::Of(int rank, int world_size, int tp_size, int replicas) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return Wrong("rank " + std::to_string(rank) + " does not exist in a world of " + std::to_string(world_size));
  }
  if (tp_size < 1 || world_size % tp_size != 0) {
    return Wrong("the world size " + std::to_string(world_size) + " is no multiple of the tensor-parallel size " +
                 std::to_string(tp_size) + "; change one of them");
  }
  const int dp_size = world_size / tp_size;
  if (replicas == 0) replicas = FewestReplicas(dp_size);
  if (replicas < 1 || dp_size % replicas != 0) {
    return Wrong("the data-parallel size " + std::to_string(dp_size) + " is no multiple of the replica count " +
                 std::to_string(replicas) + "; change one of them");
  }
  RankLayout layout;
  layout.dp_rank = rank / tp_size;
  layout.dp_size = dp_size;
  layout.tp_rank = rank % tp_size;
  layout.tp_size = tp_size;
  layout.replicas = replicas;
  return layout;
}

Result<RankLayout> RankLayout::Among(int number, int world_size) const {
  const int dp_size_there = world_size / tp_size;
  if (dp_size_there < 1 || dp_size_there % shards() != 0)
    return Wrong(std::to_string(world_size) + " ranks do not hold " + std::to_string(shards()) +
                 " shards equally often");
  return Of(number, world_size, tp_size, dp_size_there / shards());
}

std::vector<int> RankLayout::DataParallelGroup() const {
  std::vector<int> ranks;
  for (int dp = 0; dp < dp_size; ++dp) ranks.push_back(dp * tp_size + tp_rank);
  return ranks;
}

std::vector<int> RankLayout::TensorParallelGroup() const {
  std::vector<int> ranks;
  for (int tp = 0; tp < tp_size; ++tp) ranks.push_back(dp_rank * tp_size + tp);
  return ranks;
}

std::vector<int> RankLayout::ShardGroup() const {
  std::vector<int> ranks;
  for (int s = 0; s < shards(); ++s) ranks.push_back((replica() * shards() + s) * tp_size + tp_rank);
  return ranks;
}

std::vector<int> RankLayout::ReplicaGroup() const {
  std::vector<int> ranks;
  for (int copy = 0; copy < replicas; ++copy) ranks.push_back((copy * shards() + shard()) * tp_size + tp_rank);
  return ranks;
}

}  // namespace kintsugi::byte_lm
