// Distribution: which of the ranks that hold a shard writes, or reads, it.
//
// What: two policies, both functions of the list of shards alone, so that every rank comes to the same answer.
//   megatron  sort by: cross-group, number of holders, size descending, shard id (key, offset, flat range). Give each
//             shard to its holder with the smallest (load, rank). Shards whose main replica is outside of the process
//             group come last: what else is loaded, is loaded by the rank that would save it.
//   balanced  the better of that and of the same with sizes descending first; then a shard of the most loaded rank goes
//             to another holder, which may give one of its own to a third rank or back, as long as the largest load
//             falls. Never worse than megatron; that shards of other groups come last is not kept.
// Cost: a heap for each distinct set of holders: shards times a logarithm, not shards times ranks. The refinement has a
// limit of steps that grows with the list.
// Units: bytes.
// Errors: kRankUnknown (no holder, or one out of the world), kNegative, kTooLarge; each with the shard's key.
// Threads: pure. Source of the rule:
// `dist_checkpointing.exchange_utils.distribute_shards_to_ranks` of Megatron-core.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::plan {

enum class DistributionPolicy : uint8_t { kMegatron, kBalanced };

struct SharedShard {
  std::string key;
  Shape offset;
  std::optional<FlatRange> flat;
  int64_t bytes = 0;
  uint32_t holders = 0;  // number of a set
  bool cross_group = false;
};

// Shards and, each once, the sets of ranks that hold them.
class KINTSUGI_EXPORT SharedShards {
 public:
  // The number of a set; order and repetition do not matter.
  uint32_t AddHolders(std::span<const int32_t> ranks);
  void Add(SharedShard shard) { shards_.push_back(std::move(shard)); }

  const std::vector<SharedShard>& shards() const { return shards_; }
  const std::vector<std::vector<int32_t>>& sets() const { return sets_; }  // ascending ranks
  const std::vector<int32_t>& HoldersOf(const SharedShard& shard) const { return sets_[shard.holders]; }

 private:
  std::vector<SharedShard> shards_;
  std::vector<std::vector<int32_t>> sets_;
  std::unordered_map<std::string, uint32_t> numbers_;  // by the bytes of the ranks
};

struct Assignment {
  std::vector<int32_t> rank;  // of each shard, in the order of the list
  std::vector<int64_t> load;  // bytes of each rank
  bool operator==(const Assignment&) const = default;
};

// `ranks`: the world is 0 to ranks - 1.
KINTSUGI_EXPORT Result<Assignment, layout::LayoutError> Distribute(const SharedShards& shards, int32_t ranks,
                                                                   DistributionPolicy policy);

// The tensors' pieces of a metadata as a group of ranks shares them out (empty: all ranks). For a save only those with
// a main replica in the group; for a load also the others, as cross-group.
KINTSUGI_EXPORT SharedShards ShardsOf(const layout::Metadata& metadata, std::span<const int32_t> group, bool is_load);

}  // namespace kintsugi::plan
