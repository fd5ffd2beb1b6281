// What `kintsugi reshard validate` answers: the verdict over one side, and with `list` every shard's box.
//
//   {"ok": true, "tensors": N, "shards": N, "holders": N, "bytes": N}, with `list` also
//   "held": [{"rank", "key", "global_shape", "offset", "shape", "flat": null or [start, stop], "replica_id": [..]}]
// `shards` counts distinct ones, `holders` every rank's, `bytes` each tensor once.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "replica/layout/metadata.h"

namespace kintsugi::reshard {

// REQUIRES for both: metadata that layout::Validate found right.
std::string ValidateJson(const layout::Metadata& metadata, bool list);
std::string ValidateTable(const layout::Metadata& metadata);

}  // namespace kintsugi::reshard
