#include "replica/plan/hit_finder.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::plan {

using layout::Box;
using layout::Point;

namespace {

// Number, within `box`, of the first element at or after `at` that is in `part`, which lies within `box`; -1: none.
int64_t NextWithin(const Box& box, const Box& part, int64_t at) {
  KINTSUGI_CHECK(Contains(box, part), "a part that is walked lies in its box");
  Point point = Unravel(box, at);
  for (int axis = 0; axis < box.axes; ++axis) {
    if (point[axis] >= part.lo[axis] && point[axis] < part.hi[axis]) continue;
    int from = axis;
    if (point[axis] >= part.hi[axis]) {
      // Past the end of this axis: one on along an axis before it.
      int before = axis - 1;
      while (before >= 0 && point[before] + 1 >= part.hi[before]) --before;
      if (before < 0) return -1;
      ++point[before];
      from = before + 1;
    }
    for (int rest = from; rest < box.axes; ++rest) point[rest] = part.lo[rest];
    break;
  }
  return Ravel(box, point);
}

}  // namespace

void HitFinder::Start(const Wanted& wanted) {
  axes_ = wanted.box.axes;
  hits_.clear();
  coordinates_.clear();
  cells_.clear();
  const auto add = [&](const Box& box) {
    const Box cell = wanted.is_clipped ? Intersect(box, wanted.common) : box;
    if (!IsEmpty(cell)) cells_.push_back(cell);
  };
  if (wanted.is_whole)
    add(wanted.box);
  else
    for (const Box& box : BoxesOf(wanted.box, wanted.flat)) add(box);
}

bool HitFinder::FindAll(const Wanted& wanted) {
  Start(wanted);
  if (!wanted.is_whole && !cells_.empty()) {
    index_.boxes().Find(wanted.box, &regions_, &steps_);
    for (uint32_t number : regions_) {
      const Box box = index_.Box(number);
      if (!SharesBox(wanted, box)) continue;
      const SourceIndex::Region& region = index_.regions()[number];
      for (uint32_t i = index_.FindShare(region, wanted.flat.start);
           i < region.end_share && index_.shares()[i].flat.start < wanted.flat.stop; ++i)
        EmitRange(i, box, wanted.flat);
      return Check(wanted.box, wanted.flat.stop - wanted.flat.start, 0);
    }
  }
  for (const Box& cell : cells_) {
    const size_t first_hit = hits_.size();
    index_.boxes().Find(cell, &regions_, &steps_);
    for (uint32_t number : regions_) {
      const Box box = index_.Box(number);
      Walk(index_.regions()[number], box, Intersect(cell, box));
    }
    if (!Check(cell, Volume(cell).value_or(0), first_hit)) return false;
  }
  return true;
}

void HitFinder::FindAmong(const Wanted& wanted, std::span<const uint32_t> shares) {
  Start(wanted);
  for (uint32_t share : shares) {
    const Box box = index_.Box(index_.shares()[share].region);
    if (!SharesBox(wanted, box)) continue;
    // One region has the piece's own box: no other meets it.
    for (uint32_t same : shares)
      if (index_.shares()[same].region == index_.shares()[share].region) EmitRange(same, box, wanted.flat);
    return;
  }
  for (const Box& cell : cells_)
    for (uint32_t share : shares) {
      ++steps_;
      const Box box = index_.Box(index_.shares()[share].region);
      const Box part = Intersect(cell, box);
      if (!IsEmpty(part)) EmitWithin(share, box, part);
    }
}

// The shares of a region that meet `part` of it.
void HitFinder::Walk(const SourceIndex::Region& region, const Box& box, const Box& part) {
  if (index_.IsWhole(region)) return Emit(region.first_share, part);
  int64_t at = Ravel(box, part.lo);
  while (true) {
    ++steps_;
    const uint32_t number = index_.FindShare(region, at);
    if (number == region.end_share) return;
    const FlatRange flat = index_.shares()[number].flat;
    if (flat.start > at) {
      at = NextWithin(box, part, flat.start);
      if (at < 0) return;
      KINTSUGI_CHECK(at >= flat.start, "a walk goes on");
      if (at >= flat.stop) continue;
    }
    EmitWithin(number, box, part);
    if (flat.stop >= region.volume) return;
    at = NextWithin(box, part, flat.stop);
    if (at < 0) return;
    KINTSUGI_CHECK(at >= flat.stop, "a walk goes on");
  }
}

void HitFinder::EmitWithin(uint32_t share, const Box& region, const Box& part) {
  const FlatRange flat = index_.shares()[share].flat;
  if (index_.IsWhole(index_.regions()[index_.shares()[share].region])) return Emit(share, part);
  for (const Box& box : BoxesOf(region, flat)) {
    const Box both = Intersect(box, part);
    if (!IsEmpty(both)) Emit(share, both);
  }
}

void HitFinder::EmitRange(uint32_t share, const Box& region, FlatRange range) {
  const FlatRange flat = index_.shares()[share].flat;
  const FlatRange both = {std::max(flat.start, range.start), std::min(flat.stop, range.stop)};
  if (both.start >= both.stop) return;
  for (const Box& box : BoxesOf(region, both)) Emit(share, box);
}

void HitFinder::Emit(uint32_t share, const Box& box) {
  KINTSUGI_CHECK(box.axes == axes_, "a hit has the axes of what is wanted");
  ++steps_;
  hits_.push_back({share, Volume(box).value_or(0)});
  coordinates_.insert(coordinates_.end(), box.lo.begin(), box.lo.begin() + axes_);
  coordinates_.insert(coordinates_.end(), box.hi.begin(), box.hi.begin() + axes_);
}

bool HitFinder::Check(const Box& box, int64_t volume, size_t first_hit) {
  int64_t found = 0;
  for (size_t i = first_hit; i < hits_.size(); ++i)
    if (__builtin_add_overflow(found, hits_[i].volume, &found)) found = INT64_MAX;
  if (found == volume) return true;
  miss_ = {box, volume, found};
  return false;
}

}  // namespace kintsugi::plan
