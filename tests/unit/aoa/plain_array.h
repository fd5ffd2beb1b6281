// PlainArray: a whole small tensor and slow, obvious operations on it. What random programs are executed on; shares no
// code with the engine.
//
// A cell is a number that is unique to its place in a source tensor. A cast mixes the type's name into every cell, so a
// cast too many, too few or to another type shows; `CastMode::kKeep` leaves cells alone (a reversed program casts
// back).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kintsugi::aoa {

using PlainShape = std::vector<int64_t>;

struct PlainArray {
  PlainShape shape;
  std::vector<uint64_t> cells;
  bool operator==(const PlainArray&) const = default;
};

int64_t CellCount(const PlainShape& shape);
// The place in row-major order, and back.
int64_t PlaceOf(const PlainShape& shape, const PlainShape& index);
PlainShape IndexOf(const PlainShape& shape, int64_t place);

PlainArray PlainPermute(const PlainArray& from, const PlainShape& list);
PlainArray PlainConcatenate(const std::vector<PlainArray>& parts, size_t axis);
// The box [begin, end) of `from`.
PlainArray PlainCut(const PlainArray& from, const PlainShape& begin, const PlainShape& end);
std::vector<PlainArray> PlainSplit(const PlainArray& from, size_t axis, int64_t count);
PlainArray PlainReshape(const PlainArray& from, const PlainShape& shape);
PlainArray PlainCast(const PlainArray& from, const std::string& dtype);

}  // namespace kintsugi::aoa
