// Slice: a box of one source tensor, where it lies in the tensor described, and what is done to it on the way.
//
// Values: a slice is copied, never shared; the chain of steps is shared but immutable.
// Invariants: source_box is in the source's axis order, result_box in the present one. `map` leads from the one to the
// other, in elements from their begins; none: each axis is itself. Both are boxes at every moment: where a reshape would bend a
// slice it is cut, and so is a slice of which a part is wanted that is several boxes in the source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "replica/aoa/box.h"
#include "replica/aoa/digit_map.h"
#include "replica/aoa/piece_step.h"

namespace kintsugi::aoa {

struct StepChain {
  PieceStep step;
  std::shared_ptr<const StepChain> before;
  int64_t length = 1;
};

struct Slice {
  int source = 0;  // index into the engine's table of source tensors
  IndexBox source_box;
  IndexBox result_box;
  std::optional<DigitMap> map;
  bool is_reshaped = false;
  std::shared_ptr<const StepChain> steps;  // casts and permutes as they came; the last one; null: none
};

void AppendStep(Slice* slice, PieceStep step);
void DropCasts(Slice* slice);
// The steps in order. Once a slice was reshaped: casts, then what its map does, whatever the way there was.
std::vector<PieceStep> ListSteps(const Slice& slice);

// The parts of `slice` at `wanted`, a part of its result_box that is not empty, in the order of the result. False where they
// are more than `parts_max`.
[[nodiscard]] bool CutSlice(const Slice& slice, const IndexBox& wanted, size_t parts_max, std::vector<Slice>* parts);

// `list` is a permutation of all axes.
void PermuteSlice(Slice* slice, const std::vector<int64_t>& list);

// `slice` of a tensor of shape `from`, which becomes `to`, in row-major order. REQUIRES: as many elements.
[[nodiscard]] bool ReshapeSlice(const Slice& slice, const Shape& from, const Shape& to, size_t parts_max,
                                std::vector<Slice>* parts);

}  // namespace kintsugi::aoa
