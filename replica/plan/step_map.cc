#include "replica/plan/step_map.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::plan {

using aoa::DigitMap;
using layout::Box;
using layout::ErrorCode;
using layout::LayoutError;

namespace {

Shape LengthsOf(const Box& box) {
  Shape lengths;
  for (int axis = 0; axis < box.axes; ++axis) lengths.push_back(box.length(axis));
  return lengths;
}

Box Placed(const aoa::IndexBox& relative, const Box& within) {
  KINTSUGI_CHECK(relative.size() == static_cast<size_t>(within.axes), "a part has the axes of what it lies in");
  Box box;
  box.axes = within.axes;
  for (int axis = 0; axis < box.axes; ++axis) {
    box.lo[axis] = within.lo[axis] + relative[static_cast<size_t>(axis)].begin;
    box.hi[axis] = within.lo[axis] + relative[static_cast<size_t>(axis)].end;
  }
  return box;
}

LayoutError Refuse(const Box& source, const Box& target, const std::string& what) {
  return {
      ErrorCode::kDimensions, "", {}, target, Describe(source) + " does not become " + Describe(target) + ": " + what};
}

bool IsPermutation(std::vector<int64_t> list, size_t axes) {
  std::sort(list.begin(), list.end());
  for (size_t k = 0; k < list.size(); ++k)
    if (list[k] != static_cast<int64_t>(k)) return false;
  return list.size() == axes;
}

}  // namespace

Result<StepMap, LayoutError> StepMap::Make(const Box& source, const Box& target,
                                           std::span<const aoa::PieceStep> steps) {
  if (Volume(source) != Volume(target)) return Refuse(source, target, "the numbers of elements differ");
  if (IsEmpty(source)) return Refuse(source, target, "it has no element");
  DigitMap digits = DigitMap::Of(LengthsOf(source));
  for (const aoa::PieceStep& step : steps) {
    const Shape& now = digits.lengths(DigitMap::kResult);
    const auto refuse = [&](const std::string& what) {
      return Refuse(source, target, step.ToString() + what + Describe(layout::WholeBox(now)));
    };
    switch (step.kind) {
      case aoa::PieceStepKind::kCast:
        break;
      case aoa::PieceStepKind::kPermute:
        if (!IsPermutation(step.list, now.size())) return refuse(" does not permute ");
        digits.Permute(step.list);
        break;
      case aoa::PieceStepKind::kReshape:
      case aoa::PieceStepKind::kFlatten:
        // Neither below 0 nor past 63 bits, so it can be multiplied out.
        if (!aoa::IsRepresentable(step.list) ||
            aoa::Volume(aoa::WholeBox(step.list)) != aoa::Volume(aoa::WholeBox(now)) || !digits.Reshape(step.list))
          return refuse(" does not fit ");
        break;
    }
  }
  if (digits.lengths(DigitMap::kResult) != LengthsOf(target))
    return Refuse(source, target, "the steps make " + Describe(layout::WholeBox(digits.lengths(DigitMap::kResult))));
  return StepMap(source, target, std::move(digits));
}

std::optional<LayoutError> StepMap::Map(const Box& part, std::vector<BoxPair>* pairs) const {
  KINTSUGI_CHECK(Contains(source_, part), "what is mapped lies in the map's source");
  pairs->clear();
  if (part == source_) {
    pairs->push_back({source_, target_});
    return std::nullopt;
  }
  aoa::IndexBox relative(static_cast<size_t>(part.axes));
  for (int axis = 0; axis < part.axes; ++axis)
    relative[static_cast<size_t>(axis)] = {part.lo[axis] - source_.lo[axis], part.hi[axis] - source_.lo[axis]};
  std::vector<DigitMap::Part> parts;
  if (!digits_.Cut(DigitMap::kSource, relative, kPairsMax, &parts))
    return LayoutError{ErrorCode::kTooLarge,
                       "",
                       {},
                       part,
                       Describe(part) + " falls into more than " + std::to_string(kPairsMax) + " boxes of " +
                           Describe(target_) + " when it is reshaped"};
  for (const DigitMap::Part& one : parts)
    pairs->push_back({Placed(one.box[DigitMap::kSource], source_), Placed(one.box[DigitMap::kResult], target_)});
  return std::nullopt;
}

}  // namespace kintsugi::plan
