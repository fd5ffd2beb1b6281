#include "replica/reshard/renamed.h"

#include <algorithm>
#include <numeric>

namespace kintsugi::reshard {
namespace {

using layout::Metadata;
using plan::RenamedPlan;
using plan::Use;

// The permutes of all steps as one: axis k of the target is axis order[k] of the source. Nothing where a step reshapes.
std::optional<std::array<int, layout::kAxesMax>> OrderOf(const Use& use) {
  std::array<int, layout::kAxesMax> order{};
  std::iota(order.begin(), order.end(), 0);
  for (const aoa::Step& step : use.steps) {
    if (step.kind == aoa::StepKind::kCast) continue;
    if (step.kind != aoa::StepKind::kPermute) return std::nullopt;
    const auto before = order;
    for (size_t axis = 0; axis < step.list.size(); ++axis) order[axis] = before[static_cast<size_t>(step.list[axis])];
  }
  return order;
}

// Where the use's source box lies in the shard's memory, by coordinates of the stored tensor.
StridedMap MapOfUse(const Use& use, const std::array<int, layout::kAxesMax>& order, const StridedMap& shard) {
  StridedMap map;
  map.box = use.source_box;
  map.base = shard.OffsetOf(use.target_box.lo);
  for (int axis = 0; axis < use.target_box.axes; ++axis)
    map.stride[static_cast<size_t>(order[static_cast<size_t>(axis)])] = shard.stride[static_cast<size_t>(axis)];
  return map;
}

const layout::KeyMeta& KeyOfPiece(const Metadata& metadata, uint32_t piece) {
  const auto after = std::upper_bound(metadata.keys.begin(), metadata.keys.end(), piece,
                                      [](uint32_t number, const layout::KeyMeta& key) { return number < key.first_piece; });
  return *std::prev(after);
}

Status Reshapes(const Metadata& target, const RenamedPlan& renamed, const Use& use) {
  std::string steps;
  for (const aoa::Step& step : use.steps) steps += (steps.empty() ? "" : ", ") + step.ToString();
  return {StatusCode::kFailedPrecondition,
          "tensor '" + KeyOfPiece(target, use.target_piece).name + "', box " + layout::Describe(use.target_box) + " of '" +
              KeyOfPiece(renamed.wanted, use.wanted_piece).name + "' after " + steps +
              ": steps that reshape cannot be carried out yet; keep the stored shape, or reshape after loading"};
}

}  // namespace

Status BindRenamed(const RenamedPlan& renamed, const Metadata& target, int32_t rank, std::span<const ShardedTensor> shards,
                   Bindings* bindings) {
  std::unordered_map<uint32_t, std::vector<const ShardedTensor*>> held;  // by target piece
  for (const ShardedTensor& shard : shards) {
    KINTSUGI_ASSIGN_OR_RETURN(const uint32_t piece, FindPiece(target, rank, shard));
    held[piece].push_back(&shard);
  }
  for (const Use& use : renamed.uses) {
    const auto found = held.find(use.target_piece);
    if (found == held.end()) continue;
    const auto order = OrderOf(use);
    if (!order) return Reshapes(target, renamed, use);
    const layout::KeyMeta& key = KeyOfPiece(target, use.target_piece);
    const StridedMap whole = MapOf(target.Piece(key, use.target_piece), DTypeSize(key.dtype));
    for (const ShardedTensor* shard : found->second) {
      Destination destination{shard->memory, key.dtype, MapOfUse(use, *order, whole), {}};
      for (const aoa::Step& step : use.steps)
        if (step.kind == aoa::StepKind::kCast) destination.casts.push_back(step.dtype);
      bindings->targets[use.wanted_piece].copies.push_back({std::move(destination)});
    }
  }
  return Status::Ok();
}

Result<ExecuteResult> ExecuteRenamed(const RenamedPlan& renamed, const Metadata& source, const Metadata& target,
                                     int32_t rank, const Bindings& bindings, std::span<Link* const> links,
                                     const ExecuteOptions& options) {
  if (const auto error = CheckRenamed(renamed, source, target))
    return error->ToStatus().Annotate("the renamed plan is refused");
  return Execute(renamed.plan, source, renamed.wanted, rank, bindings, links, options);
}

}  // namespace kintsugi::reshard
