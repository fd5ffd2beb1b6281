// LayoutSpec: the JSON of `kintsugi reshard plan` and `validate` as metadata.
//
//   {"tensors": [{"key", "dtype", "global_shape": [..], "allow_shape_mismatch": false}],
//    "source":  [{"rank", "key", "offset": [..], "shape": [..], "flat": [start, stop], "replica_id": 0 or [..]}],
//    "target":  [the same], "hosts": [host of rank 0, ..]}
//
// `allow_shape_mismatch`: the tensor may be stored with another global shape; what both have is taken over.
// `flat` (row-major within the shard's own box), `replica_id` (0) and `hosts` may be left out. Where names differ,
// "source_tensors" and "target_tensors" stand in place of "tensors". Instead of "offset" a shard may say how a trainer
// cuts it: "rank_offsets": [[axis, offset, fragments], ..] and "prepend_axis_num" with the local "shape", as
// Megatron-core's ShardedTensor.from_rank_offsets; offset and global shape follow from these.
// Errors: kInvalidArgument, with a JSON pointer, for what is not of this form. What is of this form but wrong (bounds,
// flat ranges, disagreement) is in the metadata, for layout::Validate to name.
// Limits: ranks below layout::kRanksMax, 8 axes, numbers of 63 bits; memory is linear in the text.
// Threads: pure.
#pragma once

#include "replica/layout/metadata.h"
#include "runtime/base/json.h"

namespace kintsugi::reshard {

struct LayoutSpec {
  layout::Metadata source;
  layout::Metadata target;
  std::vector<int32_t> hosts;
};

enum class SpecSides {
  kSource,  // validate: a target may be there and is not read
  kBoth,    // plan
};

// A plain spec is read in place (plain_spec.h). Any other becomes a JsonDocument first, which takes more memory.
Result<LayoutSpec> ReadLayoutSpec(std::string text, SpecSides sides);

}  // namespace kintsugi::reshard
