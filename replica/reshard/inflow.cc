#include "replica/reshard/inflow.h"

#include <algorithm>
#include <atomic>

#include "kernels/host_region.h"
#include "replica/layout/flat_range.h"
#include "replica/plan/plan_check.h"
#include "replica/reshard/check_binding.h"
#include "replica/reshard/copy_elements.h"
#include "runtime/base/check.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;
using layout::KeyMeta;
using layout::Metadata;
using layout::PieceView;

// The piece's flat range within its box: the whole box where it has none.
FlatRange RangeOf(const PieceView& piece) {
  return piece.is_flat() ? FlatRange{piece.flat.start, piece.flat.stop} : FlatRange{0, *Volume(piece.box())};
}

// Adds [begin, end), which does not begin before the last one.
void Add(FlatRange next, std::vector<FlatRange>* ranges) {
  if (!ranges->empty() && next.start <= ranges->back().stop)
    ranges->back().stop = std::max(ranges->back().stop, next.stop);
  else
    ranges->push_back(next);
}

// Runs of `part` within the row-major order of `box`, each widened to whole granules, counted from `origin`.
void AddRuns(const Box& box, const Box& part, FlatRange piece, int64_t granule, std::vector<FlatRange>* ranges) {
  if (IsEmpty(part)) return;
  KINTSUGI_CHECK(Contains(box, part), "what is needed of a piece lies in it");
  // Axes behind `cut` are whole: a run goes over all of them and the part's length of `cut`.
  int cut = box.axes - 1;
  while (cut > 0 && part.length(cut) == box.length(cut)) --cut;
  int64_t row = 1;
  for (int axis = cut + 1; axis < box.axes; ++axis) row *= box.length(axis);
  const int64_t run = (box.axes > 0 ? part.length(cut) : 1) * row;
  layout::Point at = part.lo;
  while (true) {
    int64_t start = 0;
    for (int axis = 0; axis < box.axes; ++axis) start = start * box.length(axis) + (at[axis] - box.lo[axis]);
    const int64_t first = std::max<int64_t>(start - piece.start, 0);
    const int64_t end = std::min(start + run, piece.stop) - piece.start;
    if (first < end) {
      const int64_t last = piece.stop - piece.start;
      Add({first / granule * granule, std::min((end + granule - 1) / granule * granule, last)}, ranges);
    }
    int axis = cut - 1;
    while (axis >= 0 && ++at[axis] == part.hi[axis]) at[axis] = part.lo[axis], --axis;
    if (axis < 0) return;
  }
}

// Runs of a part that is one copy of the stored type, each of at least `bytes_min`; false where it is none. `at` is the
// byte of the window where the source map begins.
bool AddRunsOf(const BoundMove& move, uint64_t at, uint64_t bytes_min, std::vector<Inflow::Run>* runs) {
  if (move.target->copies.size() != 1) return false;
  for (const Destination& part : move.target->copies[0]) {
    const Box both = Intersect(move.box, part.map.box);
    if (IsEmpty(both)) continue;
    if (part.dtype != move.held->dtype || part.casts.size() > 1) return false;
    RegionPair region{.axes = both.axes, .to_stride = part.map.stride, .from_stride = move.source_map.stride};
    for (int axis = 0; axis < both.axes; ++axis) region.length[axis] = both.length(axis);
    region = Coalesce(region);
    // The last axis is the run, those before it are walked.
    const int outer = std::max(region.axes - 1, 0);
    int64_t size = move.element_bytes;
    if (region.axes > 0) {
      if (region.to_stride[outer] != size || region.from_stride[outer] != size) return false;
      size *= region.length[outer];
    }
    if (static_cast<uint64_t>(size) < bytes_min) return false;
    auto* const to = static_cast<uint8_t*>(part.memory.data) + part.map.OffsetOf(both.lo);
    const int64_t from = static_cast<int64_t>(at) + move.source_map.OffsetOf(both.lo);
    KINTSUGI_CHECK(from >= 0, "a run begins within its window");
    RegionAxes place{};
    int64_t to_at = 0, from_at = 0;
    for (int axis = 0; axis >= 0;) {
      runs->push_back({static_cast<uint64_t>(from + from_at), static_cast<uint64_t>(size), to + to_at});
      for (axis = outer - 1; axis >= 0; --axis) {
        to_at += region.to_stride[axis];
        from_at += region.from_stride[axis];
        if (++place[axis] < region.length[axis]) break;
        to_at -= region.to_stride[axis] * region.length[axis];
        from_at -= region.from_stride[axis] * region.length[axis];
        place[axis] = 0;
      }
    }
  }
  return true;
}

}  // namespace

Result<Inflow> Inflow::Make(const plan::Plan& plan, const Metadata& source, const Metadata& target, int32_t rank,
                            const Bindings& bindings) {
  if (const auto error = CheckPlan(plan, source, target)) return error->ToStatus().Annotate("the plan is refused");
  Inflow inflow(plan, source, bindings);
  for (const plan::KeyMoves& key : plan.keys)
    for (uint64_t i = key.first_move; i < key.first_move + key.move_count; ++i) {
      const plan::Move& move = plan.moves[i];
      if (move.to != rank) continue;
      BoundMove bound;
      bound.number = i;
      bound.move = &move;
      bound.held = &source.keys[key.source_key];
      bound.box = plan.BoxOf(key, i, bound.held->axes);
      bound.element_bytes = plan::ElementBytes(*bound.held);
      if (bound.is_object())
        return Status(StatusCode::kInvalidArgument, bound.Name() + ": objects do not come in windows");
      const auto target_of = bindings.targets.find(move.target_piece);
      if (target_of != bindings.targets.end()) bound.target = &target_of->second;
      KINTSUGI_RETURN_IF_ERROR(CheckTargetBinding(bound).Annotate(bound.Name()));
      inflow.flows_[move.source_piece].push_back({&key, i, inflow.taken_.size()});
      inflow.taken_.push_back(0);
    }
  return inflow;
}

PieceView Inflow::PieceOf(uint32_t piece) const {
  return source_->Piece(source_->keys[source_->KeyOfPiece(piece)], piece);
}

std::vector<uint32_t> Inflow::Pieces() const {
  std::vector<uint32_t> pieces;
  for (const auto& [piece, flows] : flows_) pieces.push_back(piece);
  return pieces;
}

std::vector<FlatRange> Inflow::Needed(uint32_t piece, int64_t granule) const {
  KINTSUGI_CHECK(granule > 0, "a granule has elements");
  std::vector<FlatRange> ranges;
  const auto found = flows_.find(piece);
  if (found == flows_.end()) return ranges;
  const PieceView view = PieceOf(piece);
  for (const Flow& flow : found->second) {
    std::vector<FlatRange> own;
    AddRuns(view.box(), plan_->BoxOf(*flow.key, flow.number, view.box().axes), RangeOf(view), granule, &own);
    ranges.insert(ranges.end(), own.begin(), own.end());
  }
  std::sort(ranges.begin(), ranges.end(), [](const FlatRange& a, const FlatRange& b) { return a.start < b.start; });
  std::vector<FlatRange> joined;
  for (const FlatRange& range : ranges) Add(range, &joined);
  return joined;
}

void Inflow::ForEachPart(uint32_t piece, int64_t first, int64_t count, const EachPart& each) const {
  const auto found = flows_.find(piece);
  if (found == flows_.end() || count == 0) return;
  const PieceView view = PieceOf(piece);
  const FlatRange range = RangeOf(view);
  KINTSUGI_CHECK(first >= 0 && count > 0 && first <= range.stop - range.start - count,
                 "a window lies within its piece");
  const KeyMeta& held = source_->keys[source_->KeyOfPiece(piece)];
  const int64_t size = plan::ElementBytes(held);
  uint64_t at = 0;
  // A window of the row-major order is a few boxes, whose memories follow one another.
  for (const Box& box : BoxesOf(view.box(), {range.start + first, range.start + first + count})) {
    BoundMove move;
    move.held = &held;
    move.element_bytes = size;
    move.source_map.box = box;
    int64_t stride = size;
    for (int axis = box.axes - 1; axis >= 0; --axis) {
      move.source_map.stride[axis] = stride;
      stride *= box.length(axis);
    }
    for (const Flow& flow : found->second) {
      move.box = Intersect(box, plan_->BoxOf(*flow.key, flow.number, held.axes));
      if (IsEmpty(move.box)) continue;
      move.number = flow.number;
      move.move = &plan_->moves[flow.number];
      move.elements = *Volume(move.box);
      move.target = &bindings_->targets.at(move.move->target_piece);
      each(flow, move, at);
    }
    at += static_cast<uint64_t>(*Volume(box) * size);
  }
}

void Inflow::Count(const Flow& flow, const BoundMove& move) {
  std::atomic_ref(taken_[flow.index]).fetch_add(move.elements, std::memory_order_relaxed);
  std::atomic_ref(bytes_).fetch_add(static_cast<uint64_t>(move.elements * move.element_bytes),
                                    std::memory_order_relaxed);
}

void Inflow::Take(uint32_t piece, int64_t first, int64_t count, const uint8_t* elements) {
  KINTSUGI_CHECK(elements != nullptr || count == 0, "a window that is taken has bytes");
  ForEachPart(piece, first, count, [&](const Flow& flow, const BoundMove& part, uint64_t at) {
    // Bytes are only read.
    const Memory memory{const_cast<uint8_t*>(elements + at),
                        static_cast<uint64_t>(*Volume(part.source_map.box) * part.element_bytes)};
    BoundMove move = part;
    move.source = &memory;
    CopyLocally(move);
    Count(flow, move);
  });
}

void Inflow::Landed(uint32_t piece, int64_t first, int64_t count) {
  ForEachPart(piece, first, count, [this](const Flow& flow, const BoundMove& move, uint64_t) { Count(flow, move); });
}

std::optional<std::vector<Inflow::Run>> Inflow::RunsOf(uint32_t piece, int64_t first, int64_t count,
                                                       uint64_t bytes_min) const {
  std::vector<Run> runs;
  bool fits = true;
  ForEachPart(piece, first, count, [&](const Flow&, const BoundMove& move, uint64_t at) {
    fits = fits && AddRunsOf(move, at, bytes_min, &runs);
  });
  if (!fits) return std::nullopt;
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.at < b.at; });
  for (size_t i = 1; i < runs.size(); ++i)
    if (runs[i].at < runs[i - 1].at + runs[i - 1].size_bytes) return std::nullopt;
  return runs;
}

Status Inflow::Finish() const {
  for (const auto& [piece, flows] : flows_) {
    const KeyMeta& held = source_->keys[source_->KeyOfPiece(piece)];
    for (const Flow& flow : flows) {
      const Box box = plan_->BoxOf(*flow.key, flow.number, held.axes);
      if (taken_[flow.index] != *Volume(box))
        return {StatusCode::kInternal, "tensor '" + held.name + "': of " + Describe(box) + ", " +
                                           std::to_string(taken_[flow.index]) + " of " + std::to_string(*Volume(box)) +
                                           " elements came"};
    }
  }
  return Status::Ok();
}

}  // namespace kintsugi::reshard
