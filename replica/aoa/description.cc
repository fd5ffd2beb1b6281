#include "replica/aoa/description.h"

#include <algorithm>
#include <numeric>

#include "kernels/host_cast.h"
#include "replica/aoa/box.h"
#include "replica/layout/element_types.h"

namespace kintsugi::aoa {
namespace {

Status Invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

Status CheckAxis(int64_t axis, const Shape& shape) {
  if (axis >= 0 && static_cast<size_t>(axis) < shape.size()) return Status::Ok();
  return Invalid("axis " + std::to_string(axis) + " is not an axis of the shape " + DescribeShape(shape));
}

Status CheckSteps(const Description& description, SliceBudget& budget) {
  KINTSUGI_RETURN_IF_ERROR(budget.Take(description.slices.size()));
  for (const Slice& slice : description.slices)
    if (slice.steps && slice.steps->length >= budget.limits().steps)
      return {StatusCode::kResourceExhausted,
              "more than the limit of " + std::to_string(budget.limits().steps) + " steps on one tensor"};
  return Status::Ok();
}

Result<DescriptionPtr> Permute(const Description& input, std::vector<int64_t> list, SliceBudget& budget) {
  const size_t dimensions = input.shape.size();
  if (list.empty()) {
    list.resize(dimensions);
    std::iota(list.rbegin(), list.rend(), 0);
  }
  std::vector<int64_t> sorted = list;
  std::sort(sorted.begin(), sorted.end());
  bool is_permutation = list.size() == dimensions;
  for (size_t k = 0; is_permutation && k < dimensions; ++k) is_permutation = sorted[k] == static_cast<int64_t>(k);
  if (!is_permutation)
    return Invalid("permute " + DescribeShape(list) + " does not name every axis of the shape " +
                   DescribeShape(input.shape) + " once");
  KINTSUGI_RETURN_IF_ERROR(CheckSteps(input, budget));
  Description made{Shape(dimensions), input.dtype, input.slices};
  for (size_t k = 0; k < dimensions; ++k) made.shape[k] = input.shape[static_cast<size_t>(list[k])];
  for (Slice& slice : made.slices) PermuteSlice(&slice, list);
  return std::make_shared<const Description>(std::move(made));
}

Result<DescriptionPtr> Cast(const Description& input, const Transform& transform, SliceBudget& budget) {
  if (transform.from && *transform.from != input.dtype)
    return Invalid("src_dtype is " + std::string(DTypeName(*transform.from)) + ", but the tensor is " +
                   std::string(DTypeName(input.dtype)));
  if (!IsCastable(layout::ElementTypeOf(input.dtype), layout::ElementTypeOf(transform.to)))
    return Invalid("there is no cast from " + std::string(DTypeName(input.dtype)) + " to " +
                   std::string(DTypeName(transform.to)));
  KINTSUGI_RETURN_IF_ERROR(CheckSteps(input, budget));
  Description made{input.shape, transform.to, input.slices};
  for (Slice& slice : made.slices) AppendStep(&slice, {PieceStepKind::kCast, transform.to, {}});
  return std::make_shared<const Description>(std::move(made));
}

// [rows, columns] of a shape of three or more axes; nothing when the product does not fit.
std::optional<Shape> Flat(const Shape& shape) {
  Shape flat = {0, 1};
  if (__builtin_mul_overflow(shape[0], shape[1], &flat[0])) return std::nullopt;
  for (size_t axis = 2; axis < shape.size(); ++axis)
    if (__builtin_mul_overflow(flat[1], shape[axis], &flat[1])) return std::nullopt;
  return flat;
}

Result<DescriptionPtr> Reshape(const DescriptionPtr& input, const Transform& transform, const Shape* target,
                               SliceBudget& budget) {
  Shape to = transform.list;
  // Read backwards the list is where the tensor comes from, unless the statement was the other way round already.
  if (transform.backwards && input->shape == to) {
    if (target)
      to = *target;
    else if (to.size() >= 3)
      to = Flat(to).value_or(to);
    else
      return Invalid("the shape that " + DescribeShape(to) + " had before it was reshaped is unknown");
  }
  const Shape& from = input->shape;
  if (to == from) return input;
  const bool blocks = from.size() == 2 && to.size() >= 3 && Flat(to) == from;
  const bool unblocks = from.size() >= 3 && to.size() == 2 && Flat(from) == to;
  if ((!blocks && !unblocks) || !IsRepresentable(to))
    return Invalid("reshape of " + DescribeShape(from) + " to " + DescribeShape(to) +
                   " is not possible; only [d0*d1, rest] and [d0, d1, rest...] turn into each other");
  KINTSUGI_RETURN_IF_ERROR(CheckSteps(*input, budget));
  Description made{to, input->dtype, input->slices};
  for (Slice& slice : made.slices) blocks ? BlockRows(&slice, from, to) : UnblockRows(&slice, from, to);
  return std::make_shared<const Description>(std::move(made));
}

Status CheckMergeable(const Description& first, const Name& first_name, const Description& other, const Name& name,
                      size_t axis, bool equal_parts) {
  const auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
    return Invalid("merge along axis " + std::to_string(axis) + ": " + what + " differ: '" + first_name.text +
                   "' has " + a + ", '" + name.text + "' has " + b);
  };
  if (first.dtype != other.dtype)
    return differ("the types", std::string(DTypeName(first.dtype)), std::string(DTypeName(other.dtype)));
  bool same = first.shape.size() == other.shape.size();
  for (size_t k = 0; same && k < first.shape.size(); ++k)
    same = (k == axis && !equal_parts) || first.shape[k] == other.shape[k];
  if (!same) return differ("the shapes", DescribeShape(first.shape), DescribeShape(other.shape));
  return Status::Ok();
}

}  // namespace

Status SliceBudget::Take(size_t slices) {
  if (static_cast<int64_t>(slices) > limits_.slices - taken_)
    return {StatusCode::kResourceExhausted, "more than the limit of " + std::to_string(limits_.slices) + " slices"};
  taken_ += static_cast<int64_t>(slices);
  return Status::Ok();
}

DescriptionPtr DescribeSource(int source, const Shape& shape, DType dtype) {
  Slice slice;
  slice.source = source;
  slice.source_box = slice.result_box = WholeBox(shape);
  return std::make_shared<const Description>(Description{shape, dtype, {std::move(slice)}});
}

Result<DescriptionPtr> Apply(const Transform& transform, const DescriptionPtr& input, const Shape* target,
                             SliceBudget& budget) {
  switch (transform.kind) {
    case Transform::Kind::kPermute:
      return Permute(*input, transform.list, budget);
    case Transform::Kind::kCast:
      return Cast(*input, transform, budget);
    case Transform::Kind::kReshape:
      return Reshape(input, transform, target, budget);
  }
  return Status(StatusCode::kInternal, "unknown transform");
}

Result<DescriptionPtr> Merge(const std::vector<DescriptionPtr>& inputs, const std::vector<Name>& names, int64_t axis,
                             bool equal_parts, SliceBudget& budget) {
  KINTSUGI_RETURN_IF_ERROR(CheckAxis(axis, inputs[0]->shape));
  const auto at = static_cast<size_t>(axis);
  Description made{inputs[0]->shape, inputs[0]->dtype, {}};
  int64_t& length = made.shape[at];
  size_t count = 0;
  length = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    KINTSUGI_RETURN_IF_ERROR(CheckMergeable(*inputs[0], names[0], *inputs[i], names[i], at, equal_parts));
    if (__builtin_add_overflow(length, inputs[i]->shape[at], &length) || !IsRepresentable(made.shape))
      return Invalid("merge along axis " + std::to_string(axis) + " is too large");
    count += inputs[i]->slices.size();
  }
  KINTSUGI_RETURN_IF_ERROR(budget.Take(count));
  made.slices.reserve(count);
  int64_t shift = 0;
  for (const DescriptionPtr& input : inputs) {
    for (const Slice& slice : input->slices) {
      Slice& moved = made.slices.emplace_back(slice);
      moved.result_box[at].begin += shift;
      moved.result_box[at].end += shift;
    }
    shift += input->shape[at];
  }
  return std::make_shared<const Description>(std::move(made));
}

Result<std::vector<DescriptionPtr>> Split(const Description& input, size_t parts, int64_t axis, SliceBudget& budget) {
  KINTSUGI_RETURN_IF_ERROR(CheckAxis(axis, input.shape));
  const auto at = static_cast<size_t>(axis);
  const auto count = static_cast<int64_t>(parts);
  if (input.shape[at] % count != 0)
    return Invalid("axis " + std::to_string(axis) + " of the shape " + DescribeShape(input.shape) +
                   " cannot be split into " + std::to_string(parts) + " equal parts");
  const int64_t length = input.shape[at] / count;
  std::vector<std::shared_ptr<Description>> made(parts);
  for (auto& part : made) {
    part = std::make_shared<Description>(Description{input.shape, input.dtype, {}});
    part->shape[at] = length;
  }
  if (Volume(WholeBox(input.shape)) == 0) {
    // Nothing can be cut out, but the parts must know what they were made of: every part keeps every slice, empty.
    KINTSUGI_RETURN_IF_ERROR(budget.Take(parts * input.slices.size()));
    for (const Slice& slice : input.slices) {
      Slice nothing = slice;
      nothing.result_box.assign(nothing.result_box.size(), Interval{});
      nothing.source_box.assign(nothing.source_box.size(), Interval{});
      for (auto& part : made) part->slices.push_back(nothing);
    }
    return std::vector<DescriptionPtr>(made.begin(), made.end());
  }
  for (const Slice& slice : input.slices) {
    const Interval had = slice.result_box[at];
    if (had.begin == had.end) continue;
    const int64_t first = had.begin / length, last = (had.end - 1) / length;
    KINTSUGI_RETURN_IF_ERROR(budget.Take(static_cast<size_t>(last - first + 1)));
    for (int64_t i = first; i <= last; ++i) {
      Slice& cut = made[static_cast<size_t>(i)]->slices.emplace_back(slice);
      CutAxis(&cut, at, {std::max(had.begin, i * length), std::min(had.end, (i + 1) * length)});
      cut.result_box[at].begin -= i * length;
      cut.result_box[at].end -= i * length;
    }
  }
  return std::vector<DescriptionPtr>(made.begin(), made.end());
}

}  // namespace kintsugi::aoa
