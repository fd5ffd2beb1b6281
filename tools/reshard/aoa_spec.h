// The JSON of `kintsugi aoa explain`, in and out.
//
//   {"statements": [..], "reverse": false, "source": {"KEY": {"shape": [..], "dtype": "float32", "shards": [{"offset",
//    "shape"}]}}, "destination": {the same} or null, "queries": [{"key", "box": [[lo, hi], ..], "dtype" (optional)}]}
//   -> {"ok": true, "outputs": {"KEY": {"shape", "dtype"}}, "queries": [{"key", "pieces": [{"target_box", "source_key",
//       "source_box", "steps": ["float64", "[1, 0]"]}]}], "added": [keys without source], "dropped": [states],
//       "unread": [keys of the source that nothing is made of]}
// `reverse`, `optional` (a pattern may match nothing), `shards` and `queries` may be left out. Errors and limits: as
// layout_spec.h, and those of aoa::Options.
// Threads: pure.
#pragma once

#include <variant>

#include "replica/aoa/engine.h"
#include "runtime/base/json.h"
#include "tools/reshard/refusal.h"

namespace kintsugi::reshard {

struct AoaSpec {
  aoa::Program program;
  std::vector<aoa::Target> queries;
};

struct AoaAnswer {
  std::map<std::string, aoa::Output> outputs;
  std::vector<std::string> dropped, unread, expanded;
  std::vector<std::pair<std::string, std::vector<aoa::ShardSource>>> queries;

  std::string ToJson() const;
  std::string ToTable() const;
};

Result<AoaSpec> ReadAoaSpec(const JsonField& root);
Result<AoaAnswer, AnswerRefusal> AnswerAoa(AoaSpec spec);

}  // namespace kintsugi::reshard
