#include "replica/reshard/bound_plan.h"

#include <type_traits>

#include "kernels/host_checksum.h"
#include "replica/plan/plan_check.h"
#include "replica/reshard/check_binding.h"
#include "runtime/base/check.h"

namespace kintsugi::reshard {

using layout::KeyMeta;
using layout::PieceView;
using plan::KeyMoves;
using plan::Move;

std::string BoundMove::Name() const {
  return std::string(is_object() ? "object '" : "tensor '") + held->name + "', move " + std::to_string(number) +
         " of " + Describe(box) + " from rank " + std::to_string(move->from) + " to rank " + std::to_string(move->to);
}

Result<BoundPlan> BoundPlan::Bind(const plan::Plan& plan, const layout::Metadata& source,
                                  const layout::Metadata& target, int32_t rank, const Bindings& bindings) {
  if (plan.rank && *plan.rank != rank)
    return Status(StatusCode::kInvalidArgument, "the plan is rank " + std::to_string(*plan.rank) +
                                                    "'s part, not rank " + std::to_string(rank) + "'s");
  if (const auto error = CheckPlan(plan, source, target)) return error->ToStatus().Annotate("the plan is refused");
  BoundPlan bound(plan, source, target, rank, bindings);
  bound.Sort();
  for (const auto& [peer, entries] : bound.outgoing_)
    for (const Entry& entry : entries) KINTSUGI_RETURN_IF_ERROR(bound.CheckSource(entry));
  for (const auto& [peer, entries] : bound.incoming_)
    for (const Entry& entry : entries) KINTSUGI_RETURN_IF_ERROR(bound.CheckTarget(entry));
  for (const Entry& entry : bound.local_) {
    KINTSUGI_RETURN_IF_ERROR(bound.CheckSource(entry));
    KINTSUGI_RETURN_IF_ERROR(bound.CheckTarget(entry));
  }
  KINTSUGI_RETURN_IF_ERROR(bound.CheckApart());
  return bound;
}

void BoundPlan::Sort() {
  for (uint32_t k = 0; k < plan_->keys.size(); ++k) {
    const KeyMoves& key = plan_->keys[k];
    for (uint64_t i = key.first_move; i < key.first_move + key.move_count; ++i) {
      const Move& move = plan_->moves[i];
      if (move.from == rank_ && move.to == rank_)
        local_.push_back({i, k});
      else if (move.from == rank_)
        outgoing_[move.to].push_back({i, k});
      else if (move.to == rank_)
        incoming_[move.from].push_back({i, k});
    }
  }
}

BoundMove BoundPlan::Resolve(const Entry& entry) const {
  const KeyMoves& key = plan_->keys[entry.key];
  KINTSUGI_CHECK(entry.number >= key.first_move && entry.number - key.first_move < key.move_count,
                 "a move is one of its key's");
  BoundMove bound;
  bound.number = entry.number;
  bound.move = &plan_->moves[entry.number];
  bound.held = &source_->keys[key.source_key];
  bound.box = plan_->BoxOf(key, entry.number, bound.held->axes);
  bound.elements = *Volume(bound.box);
  bound.element_bytes = plan::ElementBytes(*bound.held);
  if (bound.move->from == rank_) {
    const auto found = bindings_->sources.find(bound.move->source_piece);
    if (found != bindings_->sources.end()) bound.source = &found->second;
    const PieceView piece = source_->Piece(*bound.held, bound.move->source_piece);
    bound.source_map = MapOf(piece, static_cast<uint64_t>(bound.element_bytes));
  }
  if (bound.move->to == rank_) {
    const auto found = bindings_->targets.find(bound.move->target_piece);
    if (found != bindings_->targets.end()) bound.target = &found->second;
  }
  return bound;
}

Status BoundPlan::CheckSource(const Entry& entry) const {
  const BoundMove move = Resolve(entry);
  const PieceView piece = source_->Piece(*move.held, move.move->source_piece);
  return CheckSourceBinding(move, piece).Annotate(move.Name());
}

Status BoundPlan::CheckTarget(const Entry& entry) const {
  const BoundMove move = Resolve(entry);
  return CheckTargetBinding(move).Annotate(move.Name());
}

Status BoundPlan::CheckApart() const { return CheckMemoriesApart(*bindings_); }

int64_t BoundPlan::BytesOf(const std::vector<Entry>& entries) const {
  int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += plan_->moves[entry.number].bytes;
  return bytes;
}

uint64_t BoundPlan::FingerprintOf(const std::vector<Entry>& entries) const {
  RunningChecksum hash(ChecksumAlgorithm::kXxh3);
  static_assert(std::has_unique_object_representations_v<Move>, "all bytes of a move are what it says");
  const uint64_t digests[] = {plan_->source_digest, plan_->target_digest};
  hash.Update(digests, sizeof(digests));
  for (const Entry& entry : entries) {
    const KeyMoves& key = plan_->keys[entry.key];
    const Move& move = plan_->moves[entry.number];
    const int axes = source_->keys[key.source_key].axes;
    hash.Update(&move, sizeof(move));
    hash.Update(plan_->Coordinates(key, entry.number, axes), sizeof(int64_t) * 2 * static_cast<uint64_t>(axes));
  }
  return hash.Value();
}

}  // namespace kintsugi::reshard
