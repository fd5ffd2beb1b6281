#include "replica/reshard/copy_elements.h"

#include <algorithm>

#include "kernels/host_cast.h"
#include "replica/layout/element_types.h"
#include "replica/layout/flat_range.h"
#include "runtime/base/check.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;
using layout::FlatBoxes;

// Elements that are cast more than once at a time.
constexpr int64_t kChainElements = 1024;
constexpr int64_t kElementBytesMax = 16;

int64_t VolumeOf(const RegionPair& region) {
  int64_t volume = 1;
  for (int axis = 0; axis < region.axes; ++axis) volume *= region.length[axis];
  return volume;
}

RegionAxes LengthsOf(const Box& box) {
  RegionAxes lengths{};
  for (int axis = 0; axis < box.axes; ++axis) lengths[axis] = box.length(axis);
  return lengths;
}

uint8_t* AddressOf(const Memory& memory, const StridedMap& map, const Box& box) {
  return static_cast<uint8_t*>(memory.data) + map.OffsetOf(box.lo);
}

// Through every type of a chain, a few elements at a time.
void CastChain(uint8_t* to, const uint8_t* from, const RegionPair& region, DType stored,
               const std::vector<DType>& casts) {
  const int64_t volume = VolumeOf(region);
  if (volume > kChainElements) {
    const auto longest = static_cast<int>(std::max_element(region.length.begin(), region.length.begin() + region.axes) -
                                          region.length.begin());
    RegionPair first = region, second = region;
    first.length[longest] /= 2;
    second.length[longest] -= first.length[longest];
    CastChain(to, from, first, stored, casts);
    return CastChain(to + first.length[longest] * region.to_stride[longest],
                     from + first.length[longest] * region.from_stride[longest], second, stored, casts);
  }
  uint8_t buffers[2][kChainElements * kElementBytesMax];
  const auto dense = [&](DType type) { return DenseStrides(region.axes, region.length, DTypeSize(type)); };
  const uint8_t* at = from;
  RegionAxes stride = region.from_stride;
  DType type = stored;
  for (size_t i = 0; i < casts.size(); ++i) {
    KINTSUGI_CHECK(DTypeSize(casts[i]) <= kElementBytesMax, "a buffer between casts holds every type");
    const bool is_last = i + 1 == casts.size();
    RegionPair step{.axes = region.axes, .length = region.length, .to_stride = region.to_stride, .from_stride = stride};
    if (!is_last) step.to_stride = dense(casts[i]);
    uint8_t* next = is_last ? to : buffers[i % 2];
    CastRegion(next, layout::ElementTypeOf(casts[i]), at, layout::ElementTypeOf(type), step);
    at = next;
    stride = step.to_stride;
    type = casts[i];
  }
}

// Elements of `box`, which lie at `from` by `stride`, into all that takes them.
void Write(const BoundMove& move, const Box& box, const uint8_t* from, const RegionAxes& stride) {
  for (const DestinationCopy& copy : move.target->copies)
    for (const Destination& part : copy) {
      const Box both = Intersect(box, part.map.box);
      if (IsEmpty(both)) continue;
      const uint8_t* at = from;
      for (int axis = 0; axis < box.axes; ++axis) at += stride[axis] * (both.lo[axis] - box.lo[axis]);
      const RegionPair region{
          .axes = box.axes, .length = LengthsOf(both), .to_stride = part.map.stride, .from_stride = stride};
      uint8_t* to = AddressOf(part.memory, part.map, both);
      if (part.casts.size() > 1)
        CastChain(to, at, region, move.held->dtype, part.casts);
      else
        CastRegion(to, layout::ElementTypeOf(part.dtype), at, layout::ElementTypeOf(move.held->dtype), region);
    }
}

// One run of bytes in the box's own order.
bool IsRun(const Box& box, const StridedMap& map, int64_t element_bytes) {
  int64_t step = element_bytes;
  for (int axis = box.axes - 1; axis >= 0; --axis) {
    if (box.length(axis) > 1 && map.stride[axis] != step) return false;
    step *= box.length(axis);
  }
  return true;
}

}  // namespace

const uint8_t* ContiguousSource(const BoundMove& move) {
  return IsRun(move.box, move.source_map, move.element_bytes) ? AddressOf(*move.source, move.source_map, move.box)
                                                              : nullptr;
}

uint8_t* ContiguousTarget(const BoundMove& move) {
  if (move.target->copies.size() != 1) return nullptr;
  for (const Destination& part : move.target->copies[0])
    if (Contains(part.map.box, move.box) && part.dtype == move.held->dtype && part.casts.size() <= 1 &&
        IsRun(move.box, part.map, move.element_bytes))
      return AddressOf(part.memory, part.map, move.box);
  return nullptr;
}

void PackElements(const BoundMove& move, ElementRange range, uint8_t* to) {
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop && range.stop <= move.elements,
                 "elements that are packed are the move's");
  for (const Box& box : BoxesOf(move.box, {range.start, range.stop})) {
    const Region region{.axes = box.axes, .length = LengthsOf(box), .stride = move.source_map.stride};
    PackRegion(to, AddressOf(*move.source, move.source_map, box), region, static_cast<uint64_t>(move.element_bytes));
    to += *Volume(box) * move.element_bytes;
  }
}

void UnpackElements(const BoundMove& move, ElementRange range, const uint8_t* from) {
  KINTSUGI_CHECK(0 <= range.start && range.start <= range.stop && range.stop <= move.elements,
                 "elements that are unpacked are the move's");
  for (const Box& box : BoxesOf(move.box, {range.start, range.stop})) {
    Write(move, box, from, DenseStrides(box.axes, LengthsOf(box), static_cast<uint64_t>(move.element_bytes)));
    from += *Volume(box) * move.element_bytes;
  }
}

void CopyLocally(const BoundMove& move) {
  Write(move, move.box, AddressOf(*move.source, move.source_map, move.box), move.source_map.stride);
}

}  // namespace kintsugi::reshard
