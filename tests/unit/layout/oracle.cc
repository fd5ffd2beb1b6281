#include "tests/unit/layout/oracle.h"

#include <algorithm>
#include <set>

namespace kintsugi::layout {
namespace {

bool IsMain(const ShardedTensor& tensor) {
  return std::all_of(tensor.replica_id.begin(), tensor.replica_id.end(), [](int64_t id) { return id == 0; });
}

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t length : shape) count *= length;
  return count;
}

bool IsSameBox(const ShardedTensor& a, const ShardedTensor& b) {
  return a.global_offset == b.global_offset && a.local_shape == b.local_shape;
}

std::optional<ErrorCode> JudgeAgreement(const std::vector<RankShard>& shards) {
  // Validate names the first attribute in which the lowest and the next of the key's variants differ; here any will do.
  for (const RankShard& shard : shards)
    if (shard.tensor.dtype != shards[0].tensor.dtype) return ErrorCode::kDTypeDiffers;
  for (const RankShard& shard : shards)
    if (shard.tensor.global_shape != shards[0].tensor.global_shape) return ErrorCode::kGlobalShape;
  return std::nullopt;
}

std::optional<ErrorCode> JudgeShard(const ShardedTensor& t) {
  for (size_t axis = 0; axis < t.global_shape.size(); ++axis)
    if (t.global_offset[axis] + t.local_shape[axis] > t.global_shape[axis]) return ErrorCode::kOutOfBounds;
  if (t.flattened_range && t.flattened_range->stop > Count(t.local_shape)) return ErrorCode::kFlatRange;
  for (size_t axis = 0; axis < t.axis_fragmentations.size(); ++axis) {
    if (t.local_shape[axis] * t.axis_fragmentations[axis] != t.global_shape[axis]) return ErrorCode::kMisaligned;
    if (t.local_shape[axis] != 0 && t.global_offset[axis] % t.local_shape[axis] != 0) return ErrorCode::kMisaligned;
  }
  return std::nullopt;
}

std::optional<ErrorCode> JudgePairs(const std::vector<RankShard>& shards) {
  for (size_t i = 0; i < shards.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const ShardedTensor &a = shards[i].tensor, &b = shards[j].tensor;
      if (IsMain(a) && IsMain(b) && IsSameBox(a, b) && a.flattened_range == b.flattened_range && !Elements(a).empty())
        return ErrorCode::kDoubleMain;
    }
  for (const RankShard& copy : shards) {
    const auto elements = Elements(copy.tensor);
    bool has_main = elements.empty();
    for (const RankShard& main : shards)
      has_main |= IsMain(main.tensor) && IsSameBox(main.tensor, copy.tensor) && Elements(main.tensor) == elements;
    if (!has_main) return ErrorCode::kStrayCopy;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> Elements(const ShardedTensor& t) {
  const int64_t volume = Count(t.local_shape);
  const FlatRange range = t.flattened_range.value_or(FlatRange{0, volume});
  std::vector<int64_t> elements;
  for (int64_t number = range.start; number < range.stop; ++number) {
    // From the number within the box to the number within the tensor, digit by digit.
    int64_t rest = number, global = 0, stride = 1;
    for (size_t axis = t.global_shape.size(); axis-- > 0;) {
      global += (t.global_offset[axis] + rest % t.local_shape[axis]) * stride;
      rest /= t.local_shape[axis];
      stride *= t.global_shape[axis];
    }
    elements.push_back(global);
  }
  return elements;
}

Expected Judge(const std::vector<RankShard>& shards) {
  Expected expected;
  if (shards.empty()) return expected;
  if (expected.code = JudgeAgreement(shards); expected.code) return expected;
  // The bounds' errors come in the order of pieces; which one is first is not this oracle's business.
  std::set<ErrorCode> bad;
  for (const RankShard& shard : shards)
    if (const auto code = JudgeShard(shard.tensor)) bad.insert(*code);
  if (!bad.empty()) {
    expected.code = *bad.begin();
    return expected;
  }
  if (expected.code = JudgePairs(shards); expected.code) return expected;
  expected.times.assign(static_cast<size_t>(Count(shards[0].tensor.global_shape)), 0);
  for (const RankShard& shard : shards)
    if (IsMain(shard.tensor))
      for (int64_t element : Elements(shard.tensor)) ++expected.times[static_cast<size_t>(element)];
  for (size_t i = 0; i < expected.times.size() && !expected.code; ++i)
    if (expected.times[i] != 1) {
      expected.code = expected.times[i] == 0 ? ErrorCode::kHole : ErrorCode::kOverlap;
      expected.first_wrong = static_cast<int64_t>(i);
    }
  std::set<int32_t> ranks;
  for (const RankShard& shard : shards) {
    const auto elements = Elements(shard.tensor);
    if (IsMain(shard.tensor) && std::count(elements.begin(), elements.end(), expected.first_wrong))
      ranks.insert(shard.rank);
  }
  expected.ranks.assign(ranks.begin(), ranks.end());
  return expected;
}

}  // namespace kintsugi::layout
