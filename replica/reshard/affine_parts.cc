#include "replica/reshard/affine_parts.h"

#include "runtime/base/check.h"

namespace kintsugi::reshard {
namespace {

using aoa::DigitMap;
using layout::Box;
using layout::LayoutError;

// A digit of an axis of the source box, or several that one stride goes through.
struct Run {
  int64_t length = 1;
  int64_t stride = 0;  // in the shard's memory
};

// Of every axis, outer ones first.
std::vector<std::vector<Run>> RunsOf(const DigitMap& digits, const StridedMap& shard) {
  std::vector<std::vector<Run>> axes(digits.lengths(DigitMap::kSource).size());
  for (const DigitMap::Digit& digit : digits.DigitsOf(DigitMap::kSource)) {
    std::vector<Run>& runs = axes[static_cast<size_t>(digit.at[DigitMap::kSource].axis)];
    const DigitMap::Place& place = digit.at[DigitMap::kResult];
    const Run run{digit.length, shard.stride[static_cast<size_t>(place.axis)] * place.stride};
    if (!runs.empty() && runs.back().stride == run.stride * run.length)
      runs.back() = {runs.back().length * run.length, run.stride};
    else
      runs.push_back(run);
  }
  return axes;
}

}  // namespace

Result<std::vector<StridedMap>, LayoutError> AffineParts(const plan::Use& use, const StridedMap& shard) {
  const auto steps = plan::StepMap::Make(use.source_box, use.target_box, use.steps);
  if (!steps.ok()) return steps.error();
  const std::vector<std::vector<Run>> axes = RunsOf(steps->digits(), shard);
  std::vector<StridedMap> parts(1);
  parts[0].box = use.source_box;
  parts[0].base = shard.OffsetOf(use.target_box.lo);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].empty()) continue;
    const int at = static_cast<int>(axis);
    // The innermost run has one stride; every value of the runs before it is a part of its own.
    const Run inner = axes[axis].back();
    for (StridedMap& part : parts) part.stride[axis] = inner.stride;
    int64_t behind = use.source_box.length(at);  // elements of the axis that one value of the run stands for
    for (size_t i = 0; i + 1 < axes[axis].size(); ++i) {
      const Run& run = axes[axis][i];
      KINTSUGI_CHECK(run.length > 0 && behind % run.length == 0, "the runs of an axis divide it");
      behind /= run.length;
      if (parts.size() * static_cast<uint64_t>(run.length) > kAffinePartsMax)
        return LayoutError{.code = layout::ErrorCode::kTooLarge,
                           .region = use.source_box,
                           .message = "steps that reshape cut " + layout::Describe(use.source_box) +
                                      " into more than " + std::to_string(kAffinePartsMax) + " parts"};
      std::vector<StridedMap> cut;
      cut.reserve(parts.size() * static_cast<size_t>(run.length));
      for (const StridedMap& part : parts)
        for (int64_t value = 0; value < run.length; ++value) {
          StridedMap& made = cut.emplace_back(part);
          made.box.lo[at] += value * behind;
          made.box.hi[at] = made.box.lo[at] + behind;
          made.base += value * run.stride;
        }
      parts = std::move(cut);
    }
  }
  return parts;
}

}  // namespace kintsugi::reshard
