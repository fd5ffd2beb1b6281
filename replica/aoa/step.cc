#include "replica/aoa/step.h"

#include "replica/aoa/box.h"

namespace kintsugi::aoa {

std::string Step::ToString() const {
  switch (kind) {
    case StepKind::kCast:
      return std::string(DTypeName(dtype));
    case StepKind::kPermute:
      return DescribeList(list);
    case StepKind::kReshape:
      return "reshape:" + DescribeList(list);
    case StepKind::kFlatten:
      return "flatten:" + DescribeList(list);
  }
  return "unknown step";
}

}  // namespace kintsugi::aoa
