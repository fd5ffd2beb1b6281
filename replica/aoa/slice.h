// Slice: a box of one source tensor, where it lies in the tensor described, and what is done to it on the way.
//
// Values: a slice is copied, never shared; the chain of steps is shared but immutable.
// Invariants: source_box is in the source's axis order, result_box in the present one. `axes` maps the present axes to
// the source's (empty: each to itself). As long as only permutes occurred, lengths are equal along mapped axes; behind
// a reshape `num` source elements stand for `den` present ones, and only whole groups can be cut out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replica/aoa/box.h"
#include "replica/aoa/piece_step.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

struct StepChain {
  PieceStep step;
  std::shared_ptr<const StepChain> before;
  int64_t length = 1;
};

struct AxisMap {
  int axis = -1;  // of the source; -1: lies in a reshaped part, can only be taken whole
  int64_t num = 1;
  int64_t den = 1;
};

struct Slice {
  int source = 0;  // index into the engine's table of source tensors
  IndexBox source_box;
  IndexBox result_box;
  std::vector<AxisMap> axes;
  std::shared_ptr<const StepChain> steps;         // the last one; null: none
  std::shared_ptr<const std::string> impossible;  // why no box of this slice can be had; null: it can

  AxisMap Map(size_t axis) const { return axes.empty() ? AxisMap{static_cast<int>(axis), 1, 1} : axes[axis]; }
};

void AppendStep(Slice* slice, PieceStep step);
// The steps in order.
std::vector<PieceStep> ListSteps(const Slice& slice);

// The part of `slice` at `wanted`, a part of its result_box: its box in the source; kInvalidArgument where a reshape forbids
// the cut.
Result<IndexBox> SourceBoxOf(const Slice& slice, const IndexBox& wanted);

// Cuts the slice down to `wanted`, a part of its result_box along one axis. Where a reshape forbids the cut the slice
// becomes impossible.
void CutAxis(Slice* slice, size_t axis, Interval wanted);

// `list` is a permutation of all axes.
void PermuteSlice(Slice* slice, const std::vector<int64_t>& list);

// Between [rows, columns] and [rows / block, block, rest...]: rows become blocks, or blocks rows. A slice that is not
// made of whole blocks becomes impossible.
void BlockRows(Slice* slice, const Shape& from, const Shape& to);    // two axes to more
void UnblockRows(Slice* slice, const Shape& from, const Shape& to);  // more axes to two

}  // namespace kintsugi::aoa
