// Descriptors of what a rank of byte_lm must not lose: masters and both moments, per parameter, as sharded tensors.
//
// Keys are "optimizer.<array>.<parameter>"; where only a part of the parameter's local box lies in this rank's shard,
// flattened_range says which. Parameters themselves are derived: an all-gather of the masters gives them back.
//
// Threads: a pure function.
// Ownership: descriptors point into the optimizer's state arrays.
#pragma once

#include <vector>

#include "callbacks/state/descriptors.h"
#include "integrations/examples/byte_lm/adam_shard.h"
#include "integrations/examples/byte_lm/parameter_table.h"
#include "integrations/examples/byte_lm/rank_layout.h"

namespace kintsugi::byte_lm {

// replica_id is {tensor-parallel copy, replica}: all zero on the rank whose copy a checkpoint takes.
std::vector<ShardedTensor> StateTensors(const ParameterTable& table, const AdamShard& optimizer,
                                        const RankLayout& layout);

}  // namespace kintsugi::byte_lm
