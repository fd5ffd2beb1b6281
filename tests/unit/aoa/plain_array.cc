#include "tests/unit/aoa/plain_array.h"

namespace kintsugi::aoa {

int64_t CellCount(const PlainShape& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

int64_t PlaceOf(const PlainShape& shape, const PlainShape& index) {
  int64_t place = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) place = place * shape[axis] + index[axis];
  return place;
}

PlainShape IndexOf(const PlainShape& shape, int64_t place) {
  PlainShape index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = place % shape[axis];
    place /= shape[axis];
  }
  return index;
}

PlainArray PlainPermute(const PlainArray& from, const PlainShape& list) {
  PlainArray to;
  for (const int64_t axis : list) to.shape.push_back(from.shape[static_cast<size_t>(axis)]);
  for (int64_t place = 0; place < CellCount(to.shape); ++place) {
    const PlainShape index = IndexOf(to.shape, place);
    PlainShape source(index.size());
    for (size_t k = 0; k < list.size(); ++k) source[static_cast<size_t>(list[k])] = index[k];
    to.cells.push_back(from.cells[static_cast<size_t>(PlaceOf(from.shape, source))]);
  }
  return to;
}

PlainArray PlainConcatenate(const std::vector<PlainArray>& parts, size_t axis) {
  PlainArray to;
  to.shape = parts[0].shape;
  to.shape[axis] = 0;
  for (const PlainArray& part : parts) to.shape[axis] += part.shape[axis];
  for (int64_t place = 0; place < CellCount(to.shape); ++place) {
    PlainShape index = IndexOf(to.shape, place);
    size_t part = 0;
    while (index[axis] >= parts[part].shape[axis]) index[axis] -= parts[part++].shape[axis];
    to.cells.push_back(parts[part].cells[static_cast<size_t>(PlaceOf(parts[part].shape, index))]);
  }
  return to;
}

PlainArray PlainCut(const PlainArray& from, const PlainShape& begin, const PlainShape& end) {
  PlainArray to;
  for (size_t axis = 0; axis < begin.size(); ++axis) to.shape.push_back(end[axis] - begin[axis]);
  for (int64_t place = 0; place < CellCount(to.shape); ++place) {
    PlainShape index = IndexOf(to.shape, place);
    for (size_t axis = 0; axis < index.size(); ++axis) index[axis] += begin[axis];
    to.cells.push_back(from.cells[static_cast<size_t>(PlaceOf(from.shape, index))]);
  }
  return to;
}

std::vector<PlainArray> PlainSplit(const PlainArray& from, size_t axis, int64_t count) {
  std::vector<PlainArray> parts;
  const int64_t length = from.shape[axis] / count;
  for (int64_t i = 0; i < count; ++i) {
    PlainShape begin(from.shape.size(), 0), end = from.shape;
    begin[axis] = i * length;
    end[axis] = (i + 1) * length;
    parts.push_back(PlainCut(from, begin, end));
  }
  return parts;
}

PlainArray PlainReshape(const PlainArray& from, const PlainShape& shape) { return {shape, from.cells}; }

PlainArray PlainCast(const PlainArray& from, const std::string& dtype) {
  PlainArray to = from;
  for (uint64_t& cell : to.cells)
    for (const char c : dtype) cell = (cell ^ static_cast<unsigned char>(c)) * 0x100000001b3ull + 7;
  return to;
}

}  // namespace kintsugi::aoa
