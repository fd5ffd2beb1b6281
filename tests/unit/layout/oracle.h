// The rules of Validate, slowly and obviously: element by element, pair by pair.
#pragma once

#include <optional>
#include <vector>

#include "replica/layout/error.h"
#include "tests/unit/layout/random_layout.h"

namespace kintsugi::layout {

struct Expected {
  std::optional<ErrorCode> code;
  // Of a hole or an overlap: how often each element is held by a main replica, in row-major order, and the first that
  // is not held once.
  std::vector<int> times;
  int64_t first_wrong = -1;
  std::vector<int32_t> ranks;  // mains of the first wrong element
};

// What Validate must say about the shards of one key.
Expected Judge(const std::vector<RankShard>& shards);

// Global element numbers of a shard, in the order of its memory.
std::vector<int64_t> Elements(const ShardedTensor& tensor);

}  // namespace kintsugi::layout
