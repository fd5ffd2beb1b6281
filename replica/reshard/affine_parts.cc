#include "replica/reshard/affine_parts.h"

#include <utility>

namespace kintsugi::reshard {
namespace {

using layout::Box;
using layout::LayoutError;
using layout::Point;
using plan::BoxPair;
using plan::StepMap;

class Cutter {
 public:
  Cutter(const StepMap& steps, const StridedMap& shard) : steps_(steps), shard_(shard) {}

  std::optional<LayoutError> Run(const Box& whole) {
    if (auto error = Push(whole)) return error;
    while (!open_.empty()) {
      const Box box = open_.back();
      open_.pop_back();
      if (auto error = CutOrKeep(box)) return error;
      if (parts_.size() + open_.size() > kAffinePartsMax)
        return LayoutError{.code = layout::ErrorCode::kTooLarge,
                           .region = whole,
                           .message = "steps that reshape cut " + layout::Describe(whole) + " into more than " +
                                      std::to_string(kAffinePartsMax) + " parts"};
    }
    return std::nullopt;
  }

  std::vector<StridedMap> TakeParts() { return std::move(parts_); }

 private:
  // The boxes that `box` falls into at the steps.
  std::optional<LayoutError> Push(const Box& box) {
    if (auto error = steps_.Map(box, &pairs_)) return error;
    for (const BoxPair& pair : pairs_) open_.push_back(pair.source);
    return std::nullopt;
  }

  int64_t OffsetAt(const Point& at, int axes) {
    Box element;
    element.axes = axes;
    for (int axis = 0; axis < axes; ++axis) element.lo[axis] = at[axis], element.hi[axis] = at[axis] + 1;
    std::vector<BoxPair> pair;
    if (steps_.Map(element, &pair) || pair.size() != 1) return broken_ = true, 0;
    return shard_.OffsetOf(pair[0].target.lo);
  }

  StridedMap MapAt(const Box& box) {
    StridedMap map;
    map.box = box;
    map.base = OffsetAt(box.lo, box.axes);
    for (int axis = 0; axis < box.axes; ++axis) {
      if (box.length(axis) < 2) continue;
      Point next = box.lo;
      ++next[axis];
      map.stride[static_cast<size_t>(axis)] = OffsetAt(next, box.axes) - map.base;
    }
    return map;
  }

  // Where, along a line through `from`, the distance from one element to the next is not the stride.
  std::vector<int64_t> Bends(const StridedMap& map, int axis, Point from) {
    std::vector<int64_t> bends;
    from[axis] = map.box.lo[axis];
    int64_t before = OffsetAt(from, map.box.axes);
    for (int64_t at = map.box.lo[axis] + 1; at < map.box.hi[axis]; ++at) {
      from[axis] = at;
      const int64_t here = OffsetAt(from, map.box.axes);
      if (here - before != map.stride[static_cast<size_t>(axis)]) bends.push_back(at);
      before = here;
    }
    return bends;
  }

  bool HasStraightCorners(const StridedMap& map) {
    for (uint32_t corner = 0; corner < (1u << map.box.axes); ++corner) {
      Point at = map.box.lo;
      for (int axis = 0; axis < map.box.axes; ++axis)
        if (corner >> axis & 1u) at[axis] = map.box.hi[axis] - 1;
      if (OffsetAt(at, map.box.axes) != map.OffsetOf(at)) return false;
    }
    return true;
  }

  std::optional<LayoutError> CutOrKeep(const Box& box) {
    const StridedMap map = MapAt(box);
    if (!steps_.IsAffine()) {
      Point last = box.lo;
      for (int axis = 0; axis < box.axes; ++axis) last[axis] = box.hi[axis] - 1;
      for (int axis = 0; axis < box.axes; ++axis) {
        std::vector<int64_t> bends = Bends(map, axis, box.lo);
        if (bends.empty()) bends = Bends(map, axis, last);
        if (!bends.empty()) return CutAt(box, axis, bends);
      }
      if (!HasStraightCorners(map)) return CutAt(box, LongestAxis(box), {Middle(box, LongestAxis(box))});
    }
    if (broken_)
      return LayoutError{.code = layout::ErrorCode::kDimensions,
                         .region = box,
                         .message = "an element of " + layout::Describe(box) + " has no one place after the steps"};
    parts_.push_back(map);
    return std::nullopt;
  }

  std::optional<LayoutError> CutAt(const Box& box, int axis, const std::vector<int64_t>& places) {
    int64_t from = box.lo[axis];
    for (size_t i = 0; i <= places.size(); ++i) {
      Box piece = box;
      piece.lo[axis] = from;
      piece.hi[axis] = from = i < places.size() ? places[i] : box.hi[axis];
      if (auto error = Push(piece)) return error;
    }
    return std::nullopt;
  }

  static int LongestAxis(const Box& box) {
    int longest = 0;
    for (int axis = 1; axis < box.axes; ++axis)
      if (box.length(axis) > box.length(longest)) longest = axis;
    return longest;
  }
  static int64_t Middle(const Box& box, int axis) { return box.lo[axis] + box.length(axis) / 2; }

  const StepMap& steps_;
  const StridedMap& shard_;
  std::vector<BoxPair> pairs_;
  std::vector<Box> open_;
  std::vector<StridedMap> parts_;
  bool broken_ = false;
};

}  // namespace

Result<std::vector<StridedMap>, layout::LayoutError> AffineParts(const plan::Use& use, const StridedMap& shard) {
  const auto steps = StepMap::Make(use.source_box, use.target_box, use.steps);
  if (!steps.ok()) return steps.error();
  Cutter cutter(*steps, shard);
  if (auto error = cutter.Run(use.source_box)) return *error;
  return cutter.TakeParts();
}

}  // namespace kintsugi::reshard
