#include "replica/plan/distribute.h"

#include <algorithm>
#include <numeric>

#include "replica/layout/flat_range.h"
#include "replica/plan/balance.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {

using layout::ErrorCode;
using layout::LayoutError;

namespace {

bool IdBefore(const SharedShard& a, const SharedShard& b) {
  if (a.key != b.key) return a.key < b.key;
  if (a.offset != b.offset) return a.offset < b.offset;
  if (a.flat.has_value() != b.flat.has_value()) return b.flat.has_value();
  const FlatRange flat_a = a.flat.value_or(FlatRange{}), flat_b = b.flat.value_or(FlatRange{});
  return std::pair(flat_a.start, flat_a.stop) < std::pair(flat_b.start, flat_b.stop);
}

std::vector<uint32_t> MegatronOrder(const SharedShards& list) {
  std::vector<uint32_t> order(list.shards().size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
    const SharedShard &a = list.shards()[x], &b = list.shards()[y];
    const auto rank = [&](const SharedShard& shard) {
      return std::tuple(shard.cross_group, list.HoldersOf(shard).size(), -shard.bytes);
    };
    return rank(a) != rank(b) ? rank(a) < rank(b) : IdBefore(a, b);
  });
  return order;
}

std::vector<uint32_t> LargestFirst(const SharedShards& list) {
  std::vector<uint32_t> order = MegatronOrder(list);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return list.shards()[a].bytes > list.shards()[b].bytes; });
  return order;
}

std::optional<LayoutError> Check(const SharedShards& list, int32_t ranks) {
  int64_t total = 0;
  for (const SharedShard& shard : list.shards()) {
    const auto& holders = list.HoldersOf(shard);
    if (holders.empty() || holders.front() < 0 || holders.back() >= ranks)
      return LayoutError{ErrorCode::kRankUnknown,
                         shard.key,
                         holders,
                         {},
                         "shard '" + shard.key + "' at " + DescribeShape(shard.offset) + " is held by " +
                             layout::DescribeRanks(holders) + " of a world of " + std::to_string(ranks)};
    if (shard.bytes < 0)
      return LayoutError{ErrorCode::kNegative,
                         shard.key,
                         holders,
                         {},
                         "shard '" + shard.key + "' has " + std::to_string(shard.bytes) + " bytes"};
    if (__builtin_add_overflow(total, shard.bytes, &total))
      return LayoutError{ErrorCode::kTooLarge,
                         shard.key,
                         holders,
                         {},
                         "with shard '" + shard.key + "' of " + std::to_string(shard.bytes) +
                             " bytes, all shards have more bytes than 63 bits count"};
  }
  return std::nullopt;
}

}  // namespace

uint32_t SharedShards::AddHolders(std::span<const int32_t> ranks) {
  std::vector<int32_t> set(ranks.begin(), ranks.end());
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  std::string bytes(reinterpret_cast<const char*>(set.data()), set.size() * sizeof(int32_t));
  const auto [it, is_new] = numbers_.emplace(std::move(bytes), static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(std::move(set));
  return it->second;
}

Result<Assignment, layout::LayoutError> Distribute(const SharedShards& shards, int32_t ranks,
                                                   DistributionPolicy policy) {
  if (auto error = Check(shards, ranks)) return std::move(*error);
  Assignment best = AssignInOrder(shards, ranks, MegatronOrder(shards));
  if (policy == DistributionPolicy::kMegatron) return best;
  const Assignment other = AssignInOrder(shards, ranks, LargestFirst(shards));
  if (LargestLoad(other) < LargestLoad(best)) best = other;
  Refine(shards, &best);
  KINTSUGI_CHECK(std::accumulate(best.load.begin(), best.load.end(), int64_t{0}) ==
                     std::accumulate(other.load.begin(), other.load.end(), int64_t{0}),
                 "a refinement moves shards, and loses none");
  return best;
}

SharedShards ShardsOf(const layout::Metadata& metadata, std::span<const int32_t> group, bool is_load) {
  SharedShards list;
  std::vector<int32_t> holders;
  for (const layout::KeyMeta& key : metadata.keys) {
    if (key.kind != layout::KeyKind::kTensor) continue;
    for (uint32_t i = 0; i < key.piece_count; ++i) {
      const layout::PieceView piece = metadata.Piece(key, key.first_piece + i);
      bool has_main = false;
      holders.clear();
      for (const layout::Holder& holder : piece.holders) {
        if (!group.empty() && !std::binary_search(group.begin(), group.end(), holder.rank)) continue;
        holders.push_back(holder.rank);
        has_main |= metadata.IsMain(holder);
      }
      if (holders.empty() || (!has_main && !is_load)) continue;
      SharedShard shard{key.name, Shape(piece.lo, piece.lo + piece.axes), std::nullopt, 0, list.AddHolders(holders),
                        !has_main};
      const int64_t elements =
          piece.is_flat() ? piece.flat.stop - piece.flat.start : Volume(piece.box()).value_or(INT64_MAX);
      if (piece.is_flat()) shard.flat = piece.flat;
      if (__builtin_mul_overflow(elements, static_cast<int64_t>(DTypeSize(key.dtype)), &shard.bytes))
        shard.bytes = INT64_MAX;
      list.Add(std::move(shard));
    }
  }
  return list;
}

}  // namespace kintsugi::plan
