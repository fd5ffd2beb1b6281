// Who writes which shard of a save, so that no writer has much more to write than it must: a save takes as long as its
// slowest writer.
//
// Source of the rule: Megatron-core's work distribution (replica/plan/distribute.h, which works on layouts; the
// controller knows sizes alone): shards with the fewest holders first, the largest first among them, each to the holder
// with the least so far, ties to the lowest rank. Threads, I/O: none.
// Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "callbacks/state/summary.h"
#include "runtime/core/ladder.h"

namespace kintsugi::core {

// Of the shard, as its holder registered it; of all shards without a layout.
uint64_t RegisteredBytes(const RegistrySummary& registry, std::optional<int> layout = std::nullopt);

// Bytes that a rank writes for the shard of a layout that it holds.
using ShardBytes = std::function<uint64_t(Rank holder, int layout)>;

// The same shards as in PlanSave's `plan`, in its order, by other writers: only holders that are as fit to write as the
// ones that were chosen. Objects stay with their shard.
std::vector<SaveAssignment> BalanceSave(std::vector<SaveAssignment> plan, const IncidentFacts& incident,
                                        const ShardBytes& bytes_of);

// Ranks whose partners do not have their newest objects store them by themselves, with an entry of objects alone where
// they write no shard.
std::vector<SaveAssignment> StoreOwnObjects(std::vector<SaveAssignment> plan, const IncidentFacts& incident);

}  // namespace kintsugi::core
