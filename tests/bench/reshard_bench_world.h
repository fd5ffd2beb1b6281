// The processes of the reshard benchmark: one for each rank, with state of their own, and the board on which they meet.
//
// Layouts: `tensor-parallel`, 16 tensors, half of them cut along the first axis and half along the second, from four
// ranks to two with a copy of each; `zero-1`, the same tensors one behind the other, cut flat into equal parts of eight
// ranks, to six. Sources lie in agent memory (memfd), targets in touched heap. Every run: all plan their own part, all
// execute, one rank does a memcpy, two ranks stream over their bare link.
#pragma once

#include <string>
#include <vector>

#include "replica/layout/metadata.h"
#include "replica/links/make_link.h"

namespace kintsugi::bench {

struct ReshardLayout {
  std::string name;
  int32_t ranks = 0;
  // By rank, with keys and boxes; memory comes later.
  std::vector<std::vector<ShardedTensor>> source, target;
  int64_t wanted_bytes = 0;  // of all targets
};

// `bytes` of float32 state.
ReshardLayout TensorParallel(int64_t bytes);
ReshardLayout ZeroOne(int64_t bytes);

struct ReshardRun {
  double plan_s = 0, check_s = 0, move_s = 0;  // of the slowest rank; move_s: from the first start to the last end
  double memcpy_rate = 0, link_rate = 0;       // GB/s
};

struct ReshardMeasured {
  std::vector<ReshardRun> runs;
  int64_t bytes_sent = 0, bytes_received = 0, bytes_local = 0, bytes_unstaged = 0,
          messages = 0;             // of one run, all ranks
  int64_t staging_bytes_peak = 0;   // of the rank that had most
  int64_t resident_bytes_peak = 0;  // anonymous memory above that before the execution, the same
};

ReshardMeasured MeasureReshard(const ReshardLayout& layout, LinkPreference prefer, int runs);

}  // namespace kintsugi::bench
