// Bindings: what one rank's pieces of a plan mean in memory.
//
// What: a plan names pieces by number (replica/plan/plan.h). A source piece is bound to the memory that holds it as a
// shard; a target piece to one or several copies of it, each a list of destinations. Objects are bound to bytes.
// BindSource and BindTarget do it for shards as a rank describes them.
// Errors: kNotFound where the metadata has no such piece on that rank; kInvalidArgument where the memory does not fit;
// each names key and rank.
// Ownership: holds no memory; it stays alive, and in place, until the execution has returned.
// Threads: plain data.
#pragma once

#include <unordered_map>
#include <vector>

#include "replica/layout/metadata.h"
#include "replica/reshard/destination.h"
#include "runtime/base/result.h"

namespace kintsugi::reshard {

struct TargetBinding {
  std::vector<DestinationCopy> copies;     // of a tensor
  std::vector<uint8_t>* object = nullptr;  // of an object: gets its bytes
};

struct Bindings {
  std::unordered_map<uint32_t, Memory> sources;  // an object's memory is its bytes
  std::unordered_map<uint32_t, TargetBinding> targets;
};

// Number of the piece that a rank has described with this shard.
KINTSUGI_EXPORT Result<uint32_t> FindPiece(const layout::Metadata& metadata, int32_t rank, const ShardedTensor& shard);

KINTSUGI_EXPORT Status BindSource(const layout::Metadata& source, int32_t rank, const ShardedTensor& shard,
                                  Bindings* bindings);
// Binding the same piece again adds a copy. Where the stored type differs it is cast; the planner refuses that unless
// it was asked for (PlanOptions::allow_cast).
KINTSUGI_EXPORT Status BindTarget(const layout::Metadata& source, const layout::Metadata& target, int32_t rank,
                                  const ShardedTensor& shard, Bindings* bindings);

}  // namespace kintsugi::reshard
