// The JSON of `kintsugi reshard distribute`, in and out.
//
//   {"ranks": R, "shards": [{"key", "offset": [..], "flat": null or [a, b], "bytes": N, "holders": [..], "cross_group":
//    false}]}  ->  {"ok": true, "assignment": [rank per shard, in the order of the list], "load": [bytes per rank]}
// `flat` and `cross_group` may be left out.
// Errors and limits: as layout_spec.h.
// Threads: pure.
#pragma once

#include "replica/plan/distribute.h"
#include "runtime/base/json.h"

namespace kintsugi::reshard {

struct DistributeSpec {
  int32_t ranks = 0;
  plan::SharedShards shards;
};

Result<DistributeSpec> ReadDistributeSpec(const JsonField& root);
std::string DistributeJson(const plan::Assignment& assignment);
std::string DistributeTable(const DistributeSpec& spec, const plan::Assignment& assignment);

}  // namespace kintsugi::reshard
