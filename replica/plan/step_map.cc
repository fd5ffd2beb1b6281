#include "replica/plan/step_map.h"

#include <algorithm>
#include <numeric>

#include "replica/layout/flat_range.h"

namespace kintsugi::plan {

using layout::Box;
using layout::ErrorCode;
using layout::LayoutError;
using Permutation = std::array<uint8_t, layout::kAxesMax>;

namespace {

Permutation Identity() {
  Permutation identity{};
  std::iota(identity.begin(), identity.end(), uint8_t{0});
  return identity;
}

// The axes of `box` in another order: axis k is axis order[k].
Box Permuted(const Box& box, const Permutation& order) {
  Box result;
  result.axes = box.axes;
  for (int axis = 0; axis < box.axes; ++axis) {
    result.lo[axis] = box.lo[order[axis]];
    result.hi[axis] = box.hi[order[axis]];
  }
  return result;
}

Box Unpermuted(const Box& box, const Permutation& order) {
  Box result;
  result.axes = box.axes;
  for (int axis = 0; axis < box.axes; ++axis) {
    result.lo[order[axis]] = box.lo[axis];
    result.hi[order[axis]] = box.hi[axis];
  }
  return result;
}

Box FromZero(const Box& box) {
  Box result;
  result.axes = box.axes;
  for (int axis = 0; axis < box.axes; ++axis) result.hi[axis] = box.length(axis);
  return result;
}

Box Axes(const Box& box, int first, int end) {
  Box result;
  for (int axis = first; axis < end; ++axis, ++result.axes) {
    result.lo[result.axes] = box.lo[axis];
    result.hi[result.axes] = box.hi[axis];
  }
  return result;
}

Box Joined(const Box& a, const Box& b) {
  Box result = a;
  for (int axis = 0; axis < b.axes; ++axis, ++result.axes) {
    result.lo[result.axes] = b.lo[axis];
    result.hi[result.axes] = b.hi[axis];
  }
  return result;
}

// The elements of `box` as intervals of row-major numbers in `whole`; false when there are too many.
bool Intervals(const Box& whole, const Box& box, std::vector<Box>* out) {
  int run = box.axes - 1;  // the last axis that is cut: behind it all is whole
  while (run > 0 && box.lo[run] == whole.lo[run] && box.hi[run] == whole.hi[run]) --run;
  int64_t behind = 1, count = 1;
  for (int axis = run + 1; axis < box.axes; ++axis) behind *= whole.length(axis);
  for (int axis = 0; axis < run; ++axis)
    if (__builtin_mul_overflow(count, box.length(axis), &count)) return false;
  if (count > static_cast<int64_t>(StepMap::kPairsMax)) return false;
  const Box outer = Axes(box, 0, run);
  for (int64_t i = 0; i < count; ++i) {
    layout::Point at = Unravel(outer, i);
    at[run] = box.lo[run];
    const int64_t first = Ravel(Axes(whole, 0, run + 1), at) * behind;
    Box interval;
    interval.axes = 1;
    interval.lo[0] = first;
    interval.hi[0] = first + box.length(run) * behind;
    out->push_back(interval);
  }
  return true;
}

bool Product(const std::vector<Box>& rows, const std::vector<Box>& columns, std::vector<Box>* out) {
  if (rows.size() * columns.size() > StepMap::kPairsMax) return false;
  for (const Box& row : rows)
    for (const Box& column : columns) out->push_back(Joined(row, column));
  return true;
}

// [rows, columns] to [blocks, rows of a block, rest...] of `to`.
bool SplitBox(const Box& to, const Box& box, std::vector<Box>* out) {
  const auto rows = BoxesOf(Axes(to, 0, 2), {box.lo[0], box.hi[0]});
  const auto columns = BoxesOf(Axes(to, 2, to.axes), {box.lo[1], box.hi[1]});
  return Product({rows.begin(), rows.end()}, {columns.begin(), columns.end()}, out);
}

// The way back, from `whole`.
bool JoinBox(const Box& whole, const Box& box, std::vector<Box>* out) {
  std::vector<Box> rows, columns;
  return Intervals(Axes(whole, 0, 2), Axes(box, 0, 2), &rows) &&
         Intervals(Axes(whole, 2, whole.axes), Axes(box, 2, box.axes), &columns) && Product(rows, columns, out);
}

LayoutError Refuse(const Box& source, const Box& target, const std::string& what) {
  return {
      ErrorCode::kDimensions, "", {}, target, Describe(source) + " does not become " + Describe(target) + ": " + what};
}

// [blocks, block, rest...] that a reshape step makes of [rows, columns]; nothing where it cannot. `list` is the shape
// of the whole tensor, of which a piece has other rows.
std::optional<Box> BlocksOf(const Box& rows_and_columns, const std::vector<int64_t>& list) {
  if (list.size() < 3 || list.size() > layout::kAxesMax || list[1] <= 0) return std::nullopt;
  std::vector<int64_t> shape = list;
  if (rows_and_columns.length(0) % list[1] != 0) return std::nullopt;
  shape[0] = rows_and_columns.length(0) / list[1];
  if (layout::Product(std::span(shape).subspan(2)) != rows_and_columns.length(1)) return std::nullopt;
  return layout::WholeBox(shape);
}

}  // namespace

Result<StepMap, layout::LayoutError> StepMap::Make(const Box& source, const Box& target,
                                                   std::span<const aoa::PieceStep> steps) {
  StepMap map;
  map.source_ = source;
  map.target_ = target;
  map.permute_ = Identity();
  if (Volume(source) != Volume(target)) return Refuse(source, target, "the numbers of elements differ");
  if (IsEmpty(source)) return Refuse(source, target, "it has no element");
  Box now = FromZero(source);
  for (const aoa::PieceStep& step : steps) {
    switch (step.kind) {
      case aoa::PieceStepKind::kCast:
        break;
      case aoa::PieceStepKind::kPermute: {
        std::vector<int64_t> sorted = step.list;
        std::sort(sorted.begin(), sorted.end());
        bool is_permutation = static_cast<int>(sorted.size()) == now.axes;
        for (size_t k = 0; is_permutation && k < sorted.size(); ++k)
          is_permutation = sorted[k] == static_cast<int64_t>(k);
        if (!is_permutation) return Refuse(source, target, step.ToString() + " does not permute " + Describe(now));
        Permutation order{}, &before = map.stages_.empty() ? map.permute_ : map.stages_.back().permute;
        for (int axis = 0; axis < now.axes; ++axis) order[axis] = static_cast<uint8_t>(step.list[axis]);
        now = Permuted(now, order);
        Permutation both = Identity();
        for (int axis = 0; axis < now.axes; ++axis) both[axis] = before[order[axis]];
        before = both;
        break;
      }
      case aoa::PieceStepKind::kReshape: {
        const auto blocks = now.axes == 2 ? BlocksOf(now, step.list) : std::nullopt;
        if (!blocks) return Refuse(source, target, step.ToString() + " does not fit " + Describe(now));
        map.stages_.push_back({true, now, *blocks, Identity()});
        now = *blocks;
        break;
      }
      case aoa::PieceStepKind::kFlatten: {
        if (now.axes < 3) return Refuse(source, target, step.ToString() + " does not fit " + Describe(now));
        const std::vector<int64_t> flat = {*Volume(Axes(now, 0, 2)), *Volume(Axes(now, 2, now.axes))};
        map.stages_.push_back({false, now, layout::WholeBox(flat), Identity()});
        now = map.stages_.back().after;
        break;
      }
    }
  }
  if (now != FromZero(target)) return Refuse(source, target, "the steps make " + Describe(now));
  return map;
}

bool StepMap::Forward(const Stage& stage, const Box& box, Boxes* out) {
  if (!(stage.splits ? SplitBox(stage.after, box, out) : JoinBox(stage.before, box, out))) return false;
  for (Box& result : *out) result = Permuted(result, stage.permute);
  return true;
}

bool StepMap::Backward(const Stage& stage, const Box& box, Boxes* out) {
  const Box unpermuted = Unpermuted(box, stage.permute);
  return stage.splits ? JoinBox(stage.after, unpermuted, out) : SplitBox(stage.before, unpermuted, out);
}

bool StepMap::Advance(const Box& part, Box* result, Boxes* cuts) const {
  *result = Permuted(part, permute_);
  for (size_t i = 0; i < stages_.size(); ++i) {
    Boxes boxes;
    if (!Forward(stages_[i], *result, &boxes)) return false;
    if (boxes.size() == 1) {
      *result = boxes[0];
      continue;
    }
    // Several boxes: the part is cut where they end. A cut is taken back stage by stage and may fall apart there too.
    for (size_t stage = i + 1; stage-- > 0;) {
      Boxes back;
      for (const Box& box : boxes)
        if (!Backward(stages_[stage], box, &back) || back.size() > kPairsMax) return false;
      boxes = std::move(back);
    }
    for (const Box& box : boxes) cuts->push_back(Unpermuted(box, permute_));
    return true;
  }
  return true;
}

std::optional<LayoutError> StepMap::Map(const Box& part, std::vector<BoxPair>* pairs) const {
  pairs->clear();
  if (part == source_) {
    pairs->push_back({source_, target_});
    return std::nullopt;
  }
  const auto shifted = [](Box box, const layout::Point& by, int64_t sign) {
    for (int axis = 0; axis < box.axes; ++axis) {
      box.lo[axis] += sign * by[axis];
      box.hi[axis] += sign * by[axis];
    }
    return box;
  };
  Boxes open = {shifted(part, source_.lo, -1)};
  while (!open.empty()) {
    const Box box = open.back();
    open.pop_back();
    Box result;
    Boxes cuts;
    const bool fits = Advance(box, &result, &cuts);
    if (!fits || pairs->size() + open.size() + cuts.size() > kPairsMax)
      return LayoutError{ErrorCode::kTooLarge,
                         "",
                         {},
                         part,
                         Describe(part) + " falls into more than " + std::to_string(kPairsMax) + " boxes of " +
                             Describe(target_) + " when it is reshaped"};
    if (cuts.empty())
      pairs->push_back({shifted(box, source_.lo, 1), shifted(result, target_.lo, 1)});
    else
      open.insert(open.end(), cuts.rbegin(), cuts.rend());
  }
  return std::nullopt;
}

}  // namespace kintsugi::plan
