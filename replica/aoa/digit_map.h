// DigitMap: where the elements of a box lie after permutes and reshapes, for any number of them in a row.
//
// What: an axis of a box is a number written in digits: axis 0 of [6, 4] is one digit of 6, or, once it was reshaped to
// [3, 2, 4], a digit of 3 and one of 2. A permute moves digits to another axis, a reshape hands them out anew in their
// order, so a whole chain of both is a list of digits, each with its place on either side. A reshape that would cut a digit
// anywhere but between two of its own digits ([4, 6] to [3, 8]) is no such list; the box is then cut smaller first.
// Units: elements; intervals count from the begin of the box on that side. Digits of length 1 are left out.
// Invariants: on either side the digits of an axis, outer ones first, make up its length; strides are those of a dense box.
// REQUIRES: no axis is empty.
// Threads: a value.
#pragma once

#include <cstdint>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/aoa/box.h"
#include "replica/aoa/piece_step.h"

namespace kintsugi::aoa {

class KINTSUGI_EXPORT DigitMap {
 public:
  enum Side : uint8_t { kSource, kResult };

  struct Place {
    int axis = 0;
    int64_t stride = 1;  // along the axis, from one value of the digit to the next
    bool operator==(const Place&) const = default;
  };
  struct Digit {
    int64_t length = 1;
    Place at[2];  // by Side
  };

  // A part of the box that is a box on both sides.
  struct Part;

  // Of nothing but itself.
  static DigitMap Of(const Shape& lengths);

  // Result axis k becomes what axis list[k] was. REQUIRES: a permutation.
  void Permute(const std::vector<int64_t>& list);
  // False, and unchanged, where a digit would be cut. REQUIRES: as many elements.
  [[nodiscard]] bool Reshape(const Shape& lengths);

  // The parts that `box` of one side falls into, in its row-major order; false where they are more than `parts_max`.
  [[nodiscard]] bool Cut(Side side, const IndexBox& box, size_t parts_max, std::vector<Part>* parts) const;

  // What makes the source box the result box: reshape, permute and reshape, each only where it does something.
  std::vector<PieceStep> Steps() const;

  const Shape& lengths(Side side) const { return lengths_[side]; }
  // In the order of the result.
  const std::vector<Digit>& digits() const { return digits_; }
  // The same, in the order of `side`: axis by axis, outer digits first.
  std::vector<Digit> DigitsOf(Side side) const;

 private:
  void Restride();

  Shape lengths_[2];
  std::vector<Digit> digits_;
};

struct DigitMap::Part {
  IndexBox box[2];  // by Side
  DigitMap map;
};

}  // namespace kintsugi::aoa
