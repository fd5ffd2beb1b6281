#include "tests/unit/aoa/plain_tensor.h"

namespace kintsugi::aoa {

PlainTensor BothMerged(const std::vector<PlainTensor>& parts, size_t axis) {
  PlainTensor to = parts[0];
  std::vector<PlainArray> values, states;
  for (const PlainTensor& part : parts) {
    values.push_back(part.values);
    states.push_back(part.state);
    to.is_reshaped |= part.is_reshaped;
  }
  to.values = PlainConcatenate(values, axis);
  to.state = PlainConcatenate(states, axis);
  return to;
}

std::vector<PlainTensor> BothSplit(const PlainTensor& from, size_t axis, int64_t count) {
  const auto values = PlainSplit(from.values, axis, count), states = PlainSplit(from.state, axis, count);
  std::vector<PlainTensor> parts(values.size(), from);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].values = values[i];
    parts[i].state = states[i];
  }
  return parts;
}

PlainShape Reversal(size_t dimensions) {
  PlainShape list;
  for (size_t k = dimensions; k-- > 0;) list.push_back(static_cast<int64_t>(k));
  return list;
}

bool Fit(const PlainTensor& a, const PlainTensor& b, size_t axis) {
  if (a.dtype != b.dtype || a.values.shape.size() != b.values.shape.size()) return false;
  for (size_t k = 0; k < a.values.shape.size(); ++k)
    if (k != axis && a.values.shape[k] != b.values.shape[k]) return false;
  return true;
}

bool Equal(const PlainTensor& a, const PlainTensor& b) {
  return a.dtype == b.dtype && a.values.shape == b.values.shape;
}

std::vector<PlainTensor> Unfuse(const PlainTensor& fused, const std::vector<int64_t>& heads, int64_t width,
                                int64_t ranks, size_t axis) {
  std::vector<std::vector<PlainTensor>> shares(heads.size());
  int64_t at = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (size_t kind = 0; kind < heads.size(); ++kind) {
      PlainShape begin(fused.values.shape.size(), 0), end = fused.values.shape;
      begin[axis] = at;
      at += heads[kind] / ranks * width;
      end[axis] = at;
      shares[kind].push_back(Both(fused, [&](const PlainArray& a) { return PlainCut(a, begin, end); }));
    }
  }
  std::vector<PlainTensor> kinds;
  for (const auto& share : shares) kinds.push_back(BothMerged(share, axis));
  return kinds;
}

PlainTensor Fuse(const std::vector<PlainTensor>& kinds, const std::vector<int64_t>& heads, int64_t width,
                 int64_t ranks, size_t axis) {
  std::vector<PlainTensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (size_t kind = 0; kind < heads.size(); ++kind) {
      const int64_t share = heads[kind] / ranks * width;
      PlainShape begin(kinds[kind].values.shape.size(), 0), end = kinds[kind].values.shape;
      begin[axis] = rank * share;
      end[axis] = (rank + 1) * share;
      parts.push_back(Both(kinds[kind], [&](const PlainArray& a) { return PlainCut(a, begin, end); }));
    }
  }
  return BothMerged(parts, axis);
}

}  // namespace kintsugi::aoa
