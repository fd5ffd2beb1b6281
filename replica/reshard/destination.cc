#include "replica/reshard/destination.h"

namespace kintsugi::reshard {

StridedMap MapOf(const layout::PieceView& piece, uint64_t element_bytes) {
  StridedMap map;
  map.box = piece.box();
  auto step = static_cast<int64_t>(element_bytes);
  for (int axis = piece.axes - 1; axis >= 0; --axis) {
    map.stride[axis] = step;
    step *= map.box.length(axis);
  }
  if (piece.is_flat()) map.base = -piece.flat.start * static_cast<int64_t>(element_bytes);
  return map;
}

Destination PlainDestination(const layout::PieceView& piece, DType dtype, DType stored, const Memory& memory) {
  Destination destination{memory, dtype, MapOf(piece, DTypeSize(dtype)), {}};
  if (dtype != stored) destination.casts.push_back(dtype);
  return destination;
}

}  // namespace kintsugi::reshard
