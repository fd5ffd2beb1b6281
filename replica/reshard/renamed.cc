#include "replica/reshard/renamed.h"

#include "replica/reshard/affine_parts.h"

namespace kintsugi::reshard {

using layout::Metadata;
using plan::RenamedPlan;
using plan::Use;

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
    const layout::KeyMeta& key = target.keys[target.KeyOfPiece(use.target_piece)];
    const auto parts = AffineParts(use, MapOf(target.Piece(key, use.target_piece), DTypeSize(key.dtype)));
    if (!parts.ok()) return parts.error().ToStatus().Annotate("tensor '" + key.name + "'");
    std::vector<DType> casts;
    for (const aoa::PieceStep& step : use.steps)
      if (step.kind == aoa::PieceStepKind::kCast) casts.push_back(step.dtype);
    for (const ShardedTensor* shard : found->second) {
      DestinationCopy copy;
      for (const StridedMap& part : *parts) copy.push_back({shard->memory, key.dtype, part, casts});
      bindings->targets[use.wanted_piece].copies.push_back(std::move(copy));
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
