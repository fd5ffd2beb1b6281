// Renamed plans, carried out: a stored layout in its names becomes a running layout in others, as one execution.
//
// What: a renamed plan (replica/plan/renamed_plan.h) brings stored boxes to ranks and says what each becomes. Here each
// such use is a copy of its piece with its own strided maps: a rename or a cut is a base, a permute is an order of strides,
// a reshape several parts (affine_parts.h), casts are done on arrival. BindRenamed says where the target's shards lie, ExecuteRenamed proves the whole (CheckRenamed)
// and executes it. Keys that were added or dropped (renamed.added, renamed.dropped) are written by nobody.
// Errors: as execute.h; kNotFound for a shard that is not in the target; kInvalidArgument where a reshape cuts a piece into
// more than a million parts. Ownership, threads: as bindings.h and execute.h.
#pragma once

#include "replica/plan/renamed_plan.h"
#include "replica/reshard/execute.h"

namespace kintsugi::reshard {

// Binds all that this rank receives: `shards` are its pieces of the target, each as often as it has memories for it.
KINTSUGI_EXPORT Status BindRenamed(const plan::RenamedPlan& renamed, const layout::Metadata& target, int32_t rank,
                                   std::span<const ShardedTensor> shards, Bindings* bindings);

// Every rank of source and target calls it. Sources are bound with BindSource.
KINTSUGI_EXPORT Result<ExecuteResult> ExecuteRenamed(const plan::RenamedPlan& renamed, const layout::Metadata& source,
                                                     const layout::Metadata& target, int32_t rank, const Bindings& bindings,
                                                     std::span<Link* const> links, const ExecuteOptions& options = {});

}  // namespace kintsugi::reshard
