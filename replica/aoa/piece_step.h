// PieceStep: what is done to a piece of a source tensor before it is written: a cast, a permute or a reshape. The steps
// of a piece are applied in order, each to the result of the one before it.
//
//   cast      every element converted to `dtype`                                            text "float64"
//   permute   result axis k is axis list[k]                                                 text "[1, 0]"
//   reshape   the elements in their row-major order, as a box of these lengths             text "reshape:[6, 4, 8]"
//   flatten   the same, where it leaves fewer axes                                         text "flatten:[24, 8]"
// The lists of reshape and flatten are lengths of the piece itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "callbacks/state/dtype.h"
#include "runtime/base/export.h"

namespace kintsugi::aoa {

enum class PieceStepKind : uint8_t { kCast, kPermute, kReshape, kFlatten };

struct KINTSUGI_EXPORT PieceStep {
  PieceStepKind kind = PieceStepKind::kCast;
  DType dtype = DType::kFloat32;  // kCast
  std::vector<int64_t> list;      // the others

  std::string ToString() const;
  bool operator==(const PieceStep&) const = default;
};

}  // namespace kintsugi::aoa
