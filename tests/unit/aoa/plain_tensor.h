// PlainTensor: what a statement does to a tensor and to a state of it that follows, on plain arrays.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/aoa/plain_array.h"

namespace kintsugi::aoa {

// A tensor and a state of it that follows: the same changes without casts.
struct PlainTensor {
  PlainArray values;
  PlainArray state;
  std::string dtype;
  bool is_reshaped = false;  // a box may be many pieces
};

// The same change of values and state.
template <typename F>
PlainTensor Both(const PlainTensor& from, F change) {
  PlainTensor to = from;
  to.values = change(from.values);
  to.state = change(from.state);
  return to;
}

PlainTensor BothMerged(const std::vector<PlainTensor>& parts, size_t axis);
std::vector<PlainTensor> BothSplit(const PlainTensor& from, size_t axis, int64_t count);
// What a transpose of so many axes permutes by.
PlainShape Reversal(size_t dimensions);

// Whether the two can be merged along `axis`; whether they are alike in type and shape.
bool Fit(const PlainTensor& a, const PlainTensor& b, size_t axis);
bool Equal(const PlainTensor& a, const PlainTensor& b);

// Takes a fused tensor apart: per rank, its share of every kind, of `heads` heads of width `width`; and back.
std::vector<PlainTensor> Unfuse(const PlainTensor& fused, const std::vector<int64_t>& heads, int64_t width,
                                int64_t ranks, size_t axis);
PlainTensor Fuse(const std::vector<PlainTensor>& kinds, const std::vector<int64_t>& heads, int64_t width,
                 int64_t ranks, size_t axis);

}  // namespace kintsugi::aoa
