#include "replica/reshard/fill.h"

#include <algorithm>
#include <numeric>

#include "replica/plan/plan_check.h"
#include "replica/reshard/affine_parts.h"
#include "replica/reshard/check_binding.h"
#include "replica/reshard/copy_elements.h"
#include "runtime/base/check.h"

namespace kintsugi::reshard {
namespace {

using layout::KeyMeta;
using layout::Metadata;
using layout::PieceView;

int64_t ElementsOf(const PieceView& piece) {
  return piece.is_flat() ? piece.flat.stop - piece.flat.start : *Volume(piece.box());
}

// Every element of the box lies within the memory; strides are the caller's, so in 128 bits.
Status CheckSourceMap(const KeyMeta& key, const SourceView& view, const layout::Box& box) {
  __int128 first = view.map.base, last = view.map.base;
  for (int axis = 0; axis < box.axes; ++axis) {
    const __int128 stride = view.map.stride[axis];
    const __int128 low = stride * (box.lo[axis] - view.map.box.lo[axis]);
    const __int128 high = stride * (box.hi[axis] - 1 - view.map.box.lo[axis]);
    first += std::min(low, high);
    last += std::max(low, high);
  }
  last += static_cast<__int128>(DTypeSize(key.dtype));
  if (first >= 0 && last <= static_cast<__int128>(view.memory.size_bytes) && view.map.box.axes == box.axes)
    return Status::Ok();
  return {StatusCode::kInvalidArgument, "tensor '" + key.name + "': " + Describe(box) + " reaches outside of the " +
                                            std::to_string(view.memory.size_bytes) + " bytes that hold it"};
}

Status CheckOneRank(const plan::Plan& plan) {
  for (const plan::Move& move : plan.moves)
    if (move.from != move.to)
      return {StatusCode::kInvalidArgument, "a plan within one process has a move from rank " +
                                                std::to_string(move.from) + " to rank " + std::to_string(move.to)};
  return Status::Ok();
}

}  // namespace

Result<Filler> Filler::Make(const plan::Plan& plan, const Metadata& source, const Metadata& target,
                            SourceOf source_of) {
  if (const auto error = CheckPlan(plan, source, target)) return error->ToStatus().Annotate("the plan is refused");
  KINTSUGI_RETURN_IF_ERROR(CheckOneRank(plan));
  return Filler(plan, source, target, std::move(source_of));
}

Result<Filler> Filler::MakeRenamed(const plan::RenamedPlan& renamed, const Metadata& source, const Metadata& target,
                                   SourceOf source_of) {
  if (const auto error = CheckRenamed(renamed, source, target))
    return error->ToStatus().Annotate("the renamed plan is refused");
  KINTSUGI_RETURN_IF_ERROR(CheckOneRank(renamed.plan));
  Filler filler(renamed.plan, source, target, std::move(source_of));
  filler.renamed_ = &renamed;
  filler.uses_.resize(renamed.uses.size());
  std::iota(filler.uses_.begin(), filler.uses_.end(), 0u);
  std::stable_sort(filler.uses_.begin(), filler.uses_.end(),
                   [&](uint32_t a, uint32_t b) { return renamed.uses[a].target_piece < renamed.uses[b].target_piece; });
  return filler;
}

uint64_t Filler::ByteCount(uint32_t target_piece) const {
  const KeyMeta& key = target_->keys[target_->KeyOfPiece(target_piece)];
  return static_cast<uint64_t>(ElementsOf(target_->Piece(key, target_piece))) * DTypeSize(key.dtype);
}

Filler::Range Filler::MovesTo(const Metadata& wanted, uint32_t piece) const {
  const uint32_t of = wanted.KeyOfPiece(piece);
  KINTSUGI_CHECK(of < plan_->keys.size() && plan_->keys[of].target_key == of,
                 "a plan has moves for each key that is wanted, in their order");
  const plan::KeyMoves& key = plan_->keys[of];
  const auto begin = plan_->moves.begin() + static_cast<std::ptrdiff_t>(key.first_move);
  const auto end = begin + static_cast<std::ptrdiff_t>(key.move_count);
  const auto first = std::lower_bound(
      begin, end, piece, [](const plan::Move& move, uint32_t number) { return move.target_piece < number; });
  auto last = first;
  while (last != end && last->target_piece == piece) ++last;
  return {&key, static_cast<uint64_t>(first - plan_->moves.begin()),
          static_cast<uint64_t>(last - plan_->moves.begin())};
}

Status Filler::Carry(const Range& range, const DestinationCopy& copy, int64_t* elements) const {
  TargetBinding target;
  target.copies.push_back(copy);
  for (uint64_t i = range.first; i < range.end; ++i) {
    BoundMove move;
    move.number = i;
    move.move = &plan_->moves[i];
    move.held = &source_->keys[range.key->source_key];
    move.box = plan_->BoxOf(*range.key, i, move.held->axes);
    move.elements = *Volume(move.box);
    move.element_bytes = plan::ElementBytes(*move.held);
    KINTSUGI_ASSIGN_OR_RETURN(const SourceView view, source_of_(move.move->source_piece));
    KINTSUGI_RETURN_IF_ERROR(CheckSourceMap(*move.held, view, move.box));
    move.source = &view.memory;
    move.source_map = view.map;
    move.target = &target;
    KINTSUGI_RETURN_IF_ERROR(CheckTargetBinding(move).Annotate(move.Name()));
    CopyLocally(move);
    *elements += move.elements;
  }
  return Status::Ok();
}

Result<const uint8_t*> Filler::Fill(uint32_t target_piece, std::span<uint8_t> buffer) const {
  KINTSUGI_CHECK(buffer.size() >= ByteCount(target_piece), "the buffer holds the piece");
  if (renamed_) return FillRenamed(target_piece, buffer);
  const KeyMeta& key = target_->keys[target_->KeyOfPiece(target_piece)];
  const PieceView piece = target_->Piece(key, target_piece);
  const Range range = MovesTo(*target_, target_piece);
  const int64_t wanted = ElementsOf(piece);
  if (range.end == range.first + 1) {
    const KeyMeta& held = source_->keys[range.key->source_key];
    BoundMove move;
    move.box = plan_->BoxOf(*range.key, range.first, held.axes);
    if (held.dtype == key.dtype && *Volume(move.box) == wanted) {
      KINTSUGI_ASSIGN_OR_RETURN(const SourceView view, source_of_(plan_->moves[range.first].source_piece));
      KINTSUGI_RETURN_IF_ERROR(CheckSourceMap(held, view, move.box));
      move.element_bytes = plan::ElementBytes(held);
      move.source = &view.memory;
      move.source_map = view.map;
      if (const uint8_t* run = ContiguousSource(move)) return run;
    }
  }
  const Memory memory{buffer.data(), buffer.size()};
  const DType stored = source_->keys[range.key->source_key].dtype;
  int64_t filled = 0;
  KINTSUGI_RETURN_IF_ERROR(Carry(range, {PlainDestination(piece, key.dtype, stored, memory)}, &filled));
  if (filled != wanted)
    return Status(StatusCode::kInternal, "tensor '" + key.name + "': " + std::to_string(filled) + " of " +
                                             std::to_string(wanted) + " elements were filled");
  return static_cast<const uint8_t*>(buffer.data());
}

Result<const uint8_t*> Filler::FillRenamed(uint32_t target_piece, std::span<uint8_t> buffer) const {
  const KeyMeta& key = target_->keys[target_->KeyOfPiece(target_piece)];
  const StridedMap whole = MapOf(target_->Piece(key, target_piece), DTypeSize(key.dtype));
  const Memory memory{buffer.data(), buffer.size()};
  int64_t filled = 0;
  auto at = std::lower_bound(uses_.begin(), uses_.end(), target_piece,
                             [&](uint32_t use, uint32_t number) { return renamed_->uses[use].target_piece < number; });
  for (; at != uses_.end() && renamed_->uses[*at].target_piece == target_piece; ++at) {
    const plan::Use& use = renamed_->uses[*at];
    const auto parts = AffineParts(use, whole);
    if (!parts.ok()) return parts.error().ToStatus().Annotate("tensor '" + key.name + "'");
    std::vector<DType> casts;
    for (const aoa::PieceStep& step : use.steps)
      if (step.kind == aoa::PieceStepKind::kCast) casts.push_back(step.dtype);
    DestinationCopy copy;
    for (const StridedMap& part : *parts) copy.push_back({memory, key.dtype, part, casts});
    KINTSUGI_RETURN_IF_ERROR(Carry(MovesTo(renamed_->wanted, use.wanted_piece), copy, &filled));
  }
  KINTSUGI_CHECK(filled == 0 || filled == ElementsOf(target_->Piece(key, target_piece)),
                 "the uses of a piece fill it, where there are any");
  return static_cast<const uint8_t*>(buffer.data());
}

}  // namespace kintsugi::reshard
