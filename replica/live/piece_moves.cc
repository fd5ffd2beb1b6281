#include "replica/live/piece_moves.h"

#include "replica/layout/factory.h"
#include "replica/layout/merge.h"
#include "replica/live/verdict.h"
#include "replica/plan/plan_check.h"
#include "replica/plan/planner.h"

namespace kintsugi::live {
namespace {

layout::Metadata Described(const TensorsByRank& ranks) {
  std::vector<layout::Metadata> each;
  for (const auto& [rank, tensors] : ranks)
    each.push_back(layout::DescribeRank(rank.value(), {.tensors = {tensors.begin(), tensors.end()}}));
  return layout::MergeAll(each);
}

std::vector<PieceMove> MovesOf(const plan::Plan& plan, const layout::Metadata& target) {
  std::vector<PieceMove> moves;
  for (const plan::KeyMoves& key : plan.keys) {
    const layout::KeyMeta& meta = target.keys[key.target_key];
    const int axes = meta.axes;
    for (uint64_t i = key.first_move; i < key.first_move + key.move_count; ++i) {
      const int64_t* const at = plan.Coordinates(key, i, axes);
      moves.push_back(
          {meta.name, Rank(plan.moves[i].from), Rank(plan.moves[i].to), {at, at + axes}, {at + axes, at + 2 * axes}});
    }
  }
  return moves;
}

}  // namespace

Result<std::vector<PieceMove>> PlanPieceMoves(const TensorsByRank& held, const TensorsByRank& wanted) {
  Proposal all{0, {}, Described(held), Described(wanted)};
  LiveResult notes;
  KINTSUGI_RETURN_IF_ERROR(Judge(
      {.copies_by_place = true, .whole_target = true, .strict = layout::StrictHandling::kRaiseAll}, &all, &notes));
  const auto whole = plan::MakePlan(all.source, all.target);
  if (!whole.ok()) return WithRemedy(whole.error(), "target");
  if (const auto wrong = plan::CheckPlan(*whole, all.source, all.target); wrong) return wrong->ToStatus();
  // Each rank plans its own part alone: what one sends is what the other waits for.
  size_t sent = 0, received = 0;
  for (const TensorsByRank* side : {&held, &wanted})
    for (const auto& [rank, tensors] : *side) {
      const auto own = plan::MakePlan(all.source, all.target, {.rank = rank.value()});
      if (!own.ok()) return WithRemedy(own.error(), "target");
      for (const plan::Move& move : own->moves)
        side == & held ? sent += move.from == rank.value() : received += move.to == rank.value();
    }
  if (sent != whole->moves.size() || received != whole->moves.size())
    return Status(StatusCode::kInternal, "ranks would send " + std::to_string(sent) + " boxes and wait for " +
                                             std::to_string(received) + ", the whole plan has " +
                                             std::to_string(whole->moves.size()));
  return MovesOf(*whole, all.target);
}

}  // namespace kintsugi::live
