#include "replica/formats/window_plan.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::formats {

std::vector<layout::Box> CutInOrder(const layout::Box& box, int64_t elements_max) {
  elements_max = std::max<int64_t>(elements_max, 1);
  if (IsEmpty(box) || *Volume(box) <= elements_max) return {box};
  // The first axis whose slices fit is cut into runs of slices; the axes before it into single slices.
  int axis = 0;
  int64_t slice = *Volume(box);
  for (; axis < box.axes; ++axis) {
    slice /= box.length(axis);
    if (slice <= elements_max) break;
  }
  KINTSUGI_CHECK(axis < box.axes && slice > 0,
                 "no axis of " + Describe(box) + " has slices of " + std::to_string(elements_max) + " elements");
  const int64_t step = std::max<int64_t>(1, elements_max / slice);
  std::vector<layout::Box> cut;
  layout::Box at = box;
  for (int k = 0; k < axis; ++k) at.hi[k] = at.lo[k] + 1;
  for (;;) {
    for (int64_t row = box.lo[axis]; row < box.hi[axis]; row += step) {
      at.lo[axis] = row;
      at.hi[axis] = std::min(row + step, box.hi[axis]);
      cut.push_back(at);
    }
    int k = axis - 1;
    for (; k >= 0; --k) {
      if (++at.lo[k] < box.hi[k]) break;
      at.lo[k] = box.lo[k];
      at.hi[k] = at.lo[k] + 1;
    }
    if (k < 0) return cut;
    at.hi[k] = at.lo[k] + 1;
  }
}

uint64_t WindowPlan::BytesOf(uint32_t window) const {
  KINTSUGI_CHECK(window < windows_.size(), NoWindow(window));
  const NumberedPiece& piece = windows_[window];
  return static_cast<uint64_t>(*Volume(piece.box)) * DTypeSize(tensors_[piece.key].dtype);
}

Result<std::unique_ptr<WindowPlan>> WindowPlan::Make(const Content& tensors, std::span<const WantedBox> wanted,
                                                     const Catalog& source, const aoa::Engine* engine,
                                                     uint64_t window_bytes) {
  std::unique_ptr<WindowPlan> plan(new WindowPlan);
  plan->tensors_ = tensors;
  for (const WantedBox& one : wanted) {
    plan->first_.push_back(static_cast<uint32_t>(plan->windows_.size()));
    KINTSUGI_CHECK(one.tensor < tensors.size(),
                   "a box is wanted of tensor " + std::to_string(one.tensor) + " of " + std::to_string(tensors.size()));
    const CatalogTensor& tensor = tensors[one.tensor];
    const auto size = static_cast<int64_t>(DTypeSize(tensor.dtype));
    KINTSUGI_CHECK(size > 0, "elements of '" + tensor.key + "' have no bytes");
    KINTSUGI_CHECK(
        static_cast<size_t>(one.box.axes) == tensor.shape.size() && Contains(layout::WholeBox(tensor.shape), one.box),
        Describe(one.box) + " is wanted of '" + tensor.key + "' " + DescribeShape(tensor.shape));
    uint64_t bytes = 0;
    for (const layout::Box& box : CutInOrder(one.box, static_cast<int64_t>(window_bytes) / size)) {
      plan->windows_.push_back({one.tensor, box, layout::kNotFlat});
      const uint64_t own = plan->BytesOf(static_cast<uint32_t>(plan->windows_.size() - 1));
      plan->bytes_max_ = std::max(plan->bytes_max_, own);
      bytes += own;
    }
    KINTSUGI_CHECK(
        bytes == static_cast<uint64_t>(*Volume(one.box)) * static_cast<uint64_t>(size),
        "windows of " + std::to_string(bytes) + " bytes over " + Describe(one.box) + " of '" + tensor.key + "'");
  }
  plan->first_.push_back(static_cast<uint32_t>(plan->windows_.size()));
  std::vector<layout::KeyMeta> keys;
  for (const CatalogTensor& tensor : tensors) keys.push_back(KeyMetaOf(tensor));
  plan->numbered_ = BuildMetadata(keys, plan->windows_);
  KINTSUGI_CHECK(plan->numbered_.number_of.size() == plan->windows_.size(),
                 std::to_string(plan->numbered_.number_of.size()) + " numbers for " +
                     std::to_string(plan->windows_.size()) + " windows");
  const layout::Metadata& target = plan->numbered_.metadata;
  const reshard::SourceOf source_of = [&source](uint32_t piece) { return source.SourceOf(piece); };
  const plan::PlanOptions options{.allow_cast = true};
  if (engine) {
    auto renamed = MakeRenamedPlan(source.metadata(), *engine, target, options);
    if (!renamed.ok()) return renamed.status().Annotate("'" + source.path() + "'");
    plan->renamed_ = std::move(renamed).value();
    KINTSUGI_ASSIGN_OR_RETURN(plan->filler_,
                              reshard::Filler::MakeRenamed(plan->renamed_, source.metadata(), target, source_of));
    return plan;
  }
  auto plain = MakePlan(source.metadata(), target, options);
  if (!plain.ok()) return plain.status().Annotate("'" + source.path() + "'");
  plan->plan_ = std::move(plain).value();
  KINTSUGI_ASSIGN_OR_RETURN(plan->filler_, reshard::Filler::Make(plan->plan_, source.metadata(), target, source_of));
  return plan;
}

}  // namespace kintsugi::formats
