#include "replica/aoa/step.h"

#include "replica/aoa/box.h"

namespace kintsugi::aoa {

std::string Step::ToString() const {
  switch (kind) {
    case StepKind::kCast:
      return std::string(DTypeName(dtype));
    case StepKind::kPermute:
      return DescribeShape(list);
    case StepKind::kReshape:
      return "reshape:" + DescribeShape(list);
    case StepKind::kFlatten:
      return "flatten:" + DescribeShape(list);
  }
  return "unknown step";
}

}  // namespace kintsugi::aoa
