// StepMap: where a part of a source box lands once the steps of AOA are done.
//
// What: an answer of the AOA engine says that a whole source box becomes a whole target box. A plan moves parts of the
// source box. A permute sends every part to one part of the target box. A reshape does not: three rows of a block of
// four, taken with half of their columns, may lie in several boxes behind it. There the part is cut until every piece
// is a box on both sides, and one at every step between them. Casts leave places alone.
// Units: elements, in global coordinates on both sides. Cost: one pair in constant time where nothing is reshaped, else
// pairs times steps.
// Errors: kDimensions where steps do not lead from the one box to the other; kTooLarge where a part falls into more
// than kPairsMax pairs.
// Threads: a map does not change.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "replica/aoa/piece_step.h"
#include "replica/layout/box.h"
#include "replica/layout/error.h"

namespace kintsugi::plan {

// The elements of `source`, through the steps, are those of `target`: equally many.
struct BoxPair {
  layout::Box source;
  layout::Box target;
  bool operator==(const BoxPair&) const = default;
};

class KINTSUGI_EXPORT StepMap {
 public:
  static constexpr size_t kPairsMax = size_t{1} << 20;

  static Result<StepMap, layout::LayoutError> Make(const layout::Box& source, const layout::Box& target,
                                                   std::span<const aoa::PieceStep> steps);

  // The pairs that `part` falls into, in the order of the source where it is cut. REQUIRES: `part` is not empty and
  // lies within the source box. The pairs replace what is in `pairs`. An error is the only return value.
  std::optional<layout::LayoutError> Map(const layout::Box& part, std::vector<BoxPair>* pairs) const;

  // Every part becomes one pair.
  bool IsAffine() const { return stages_.empty(); }

 private:
  // One reshape with the permute behind it: `one` axes become or are made of `many`.
  struct Stage {
    bool splits = true;                               // rows to blocks of rows; false: the way back
    layout::Box before, after;                        // whole, from 0
    std::array<uint8_t, layout::kAxesMax> permute{};  // after the reshape: axis k is axis permute[k]
  };
  using Boxes = std::vector<layout::Box>;

  static bool Forward(const Stage& stage, const layout::Box& box, Boxes* out);
  static bool Backward(const Stage& stage, const layout::Box& box, Boxes* out);
  // One box at every stage, or the boxes of the source that it falls into.
  bool Advance(const layout::Box& part, layout::Box* result, Boxes* cuts) const;

  layout::Box source_, target_;
  std::array<uint8_t, layout::kAxesMax> permute_{};  // before the first reshape
  std::vector<Stage> stages_;
};

}  // namespace kintsugi::plan
