#include "replica/reshard/check_binding.h"

#include <algorithm>

#include "kernels/host_cast.h"
#include "replica/layout/cover.h"
#include "replica/layout/element_types.h"

namespace kintsugi::reshard {
namespace {

using layout::Box;

Status Refuse(const std::string& message) { return {StatusCode::kInvalidArgument, message}; }

Status CheckPlace(const Memory& memory) {
  if (memory.kind == MemoryKind::kDevice)
    return Refuse("its memory is on device " + std::to_string(memory.device) + ", only host memory is resharded");
  if (memory.data == nullptr && memory.size_bytes > 0) return Refuse("its memory is null");
  return Status::Ok();
}

// All elements of a box lie within the memory. In 128 bits: strides are the caller's.
Status CheckWithin(const Destination& part, const Box& box) {
  __int128 first = part.map.base, last = part.map.base;
  for (int axis = 0; axis < box.axes; ++axis) {
    const __int128 stride = part.map.stride[axis];
    const __int128 low = stride * (box.lo[axis] - part.map.box.lo[axis]);
    const __int128 high = stride * (box.hi[axis] - 1 - part.map.box.lo[axis]);
    first += std::min(low, high);
    last += std::max(low, high);
  }
  last += static_cast<__int128>(DTypeSize(part.dtype));
  if (first >= 0 && last <= static_cast<__int128>(part.memory.size_bytes)) return Status::Ok();
  return Refuse("the destination of " + Describe(box) + " reaches from byte " +
                std::to_string(static_cast<int64_t>(std::max<__int128>(first, INT64_MIN))) + " to " +
                std::to_string(static_cast<int64_t>(std::min<__int128>(last, INT64_MAX))) + " of a memory of " +
                std::to_string(part.memory.size_bytes) + " bytes");
}

Status CheckTypes(const Destination& part, DType stored) {
  if (!IsKnown(part.dtype)) return Refuse("the destination's type is none");
  if (part.casts.empty() && part.dtype != stored)
    return Refuse("stored as " + std::string(DTypeName(stored)) + ", its destination is " +
                  std::string(DTypeName(part.dtype)) + ", and no cast was asked for");
  DType type = stored;
  for (const DType next : part.casts) {
    if (!IsKnown(next) || !IsCastable(layout::ElementTypeOf(type), layout::ElementTypeOf(next)))
      return Refuse("there is no cast from " + std::string(DTypeName(type)) + " to " + std::string(DTypeName(next)));
    type = next;
  }
  if (type == part.dtype) return Status::Ok();
  return Refuse("its casts end in " + std::string(DTypeName(type)) + ", its destination is " +
                std::string(DTypeName(part.dtype)));
}

Status CheckCopy(const BoundMove& move, const DestinationCopy& copy) {
  layout::BoxList taken;
  taken.axes = move.box.axes;
  for (const Destination& part : copy) {
    if (part.map.box.axes != move.box.axes)
      return Refuse("a destination has " + std::to_string(part.map.box.axes) + " axes, the move " +
                    std::to_string(move.box.axes));
    const Box both = Intersect(part.map.box, move.box);
    if (IsEmpty(both)) continue;
    KINTSUGI_RETURN_IF_ERROR(CheckPlace(part.memory));
    KINTSUGI_RETURN_IF_ERROR(CheckTypes(part, move.held->dtype));
    KINTSUGI_RETURN_IF_ERROR(CheckWithin(part, both));
    taken.Add(both);
    if (copy.size() == 1 && both == move.box) return Status::Ok();
  }
  const auto wrong = FindMiscover(move.box, taken);
  if (!wrong) return Status::Ok();
  Box element = move.box;
  for (int axis = 0; axis < element.axes; ++axis) {
    element.lo[axis] = wrong->at[axis];
    element.hi[axis] = wrong->at[axis] + 1;
  }
  return Refuse("its destinations take element " + Describe(element) + " " + std::to_string(wrong->times) +
                " times, not once");
}

struct Span {
  uintptr_t begin = 0, end = 0;
  bool is_written = false;
};

void AddSpan(const Memory& memory, bool is_written, std::vector<Span>* spans) {
  if (memory.size_bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  spans->push_back({begin, begin + memory.size_bytes, is_written});
}

}  // namespace

Status CheckSourceBinding(const BoundMove& move, const layout::PieceView& piece) {
  if (move.source == nullptr) return Refuse("its source piece is bound to no memory");
  KINTSUGI_RETURN_IF_ERROR(CheckPlace(*move.source));
  if (move.is_object()) return Status::Ok();
  const int64_t elements = piece.is_flat() ? piece.flat.stop - piece.flat.start : *Volume(piece.box());
  const auto bytes = static_cast<uint64_t>(elements * move.element_bytes);
  if (move.source->size_bytes == bytes) return Status::Ok();
  return Refuse("its source piece has " + std::to_string(bytes) + " bytes, its memory " +
                std::to_string(move.source->size_bytes));
}

Status CheckTargetBinding(const BoundMove& move) {
  if (move.is_object())
    return move.target && move.target->object ? Status::Ok() : Refuse("its target object is bound to no bytes");
  if (move.target == nullptr || move.target->copies.empty())
    return Refuse("its target piece is bound to no destination");
  for (const DestinationCopy& copy : move.target->copies) KINTSUGI_RETURN_IF_ERROR(CheckCopy(move, copy));
  return Status::Ok();
}

Status CheckMemoriesApart(const Bindings& bindings) {
  std::vector<Span> spans;
  for (const auto& [piece, memory] : bindings.sources) AddSpan(memory, false, &spans);
  for (const auto& [piece, target] : bindings.targets)
    for (const DestinationCopy& copy : target.copies)
      for (const Destination& part : copy) AddSpan(part.memory, true, &spans);
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  // The furthest ends of what was passed, of each kind: the next of the other kind must begin behind it.
  uintptr_t ends[2] = {0, 0};
  for (const Span& span : spans) {
    if (span.begin < ends[!span.is_written])
      return Refuse("a source and a destination share memory: a reshard is not done in place");
    ends[span.is_written] = std::max(ends[span.is_written], span.end);
  }
  return Status::Ok();
}

}  // namespace kintsugi::reshard
