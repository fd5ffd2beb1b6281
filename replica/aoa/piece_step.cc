#include "replica/aoa/piece_step.h"

#include "replica/aoa/box.h"

namespace kintsugi::aoa {

std::string PieceStep::ToString() const {
  switch (kind) {
    case PieceStepKind::kCast:
      return std::string(DTypeName(dtype));
    case PieceStepKind::kPermute:
      return DescribeShape(list);
    case PieceStepKind::kReshape:
      return "reshape:" + DescribeShape(list);
    case PieceStepKind::kFlatten:
      return "flatten:" + DescribeShape(list);
  }
  return "unknown step";
}

}  // namespace kintsugi::aoa
