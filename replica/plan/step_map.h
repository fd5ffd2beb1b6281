// StepMap: where a part of a source box lands once the steps of AOA are done.
//
// What: an answer of the AOA engine says that a whole source box becomes a whole target box. A plan moves parts of the
// source box. A permute sends every part to one part of the target box. A reshape does not: three rows of a block of
// four, taken with half of their columns, may lie in several boxes behind it. There the part is cut until every piece
// is a box on both sides (aoa::DigitMap). Casts leave places alone.
// Units: elements, in global coordinates on both sides. Cost: linear in the pairs, whatever the steps.
// Errors: kDimensions where steps do not lead from the one box to the other, or would cut a digit; kTooLarge where a part
// falls into more than kPairsMax pairs.
// Threads: a map does not change.
#pragma once

#include <span>
#include <vector>

#include "replica/aoa/digit_map.h"
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

  // Counts from the begins of the two boxes.
  const aoa::DigitMap& digits() const { return digits_; }

 private:
  StepMap(const layout::Box& source, const layout::Box& target, aoa::DigitMap digits)
      : source_(source), target_(target), digits_(std::move(digits)) {}

  layout::Box source_, target_;
  aoa::DigitMap digits_;
};

}  // namespace kintsugi::plan
