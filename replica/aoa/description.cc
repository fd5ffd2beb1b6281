#include "replica/aoa/description.h"

#include <algorithm>
#include <numeric>

#include "kernels/host_cast.h"
#include "replica/aoa/box.h"
#include "replica/layout/element_types.h"
#include "runtime/base/check.h"

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

// The shape with axes of length 1 put in or taken out at the places of `list`: of the shape that has them.
Result<Shape> Squeezed(const Shape& from, const std::vector<int64_t>& list, bool adds) {
  const char* const name = adds ? "unsqueeze" : "squeeze";
  const size_t axes = adds ? from.size() + list.size() : from.size();
  std::vector<bool> is_named(axes);
  for (const int64_t axis : list) {
    if (axis < 0 || static_cast<size_t>(axis) >= axes || is_named[static_cast<size_t>(axis)])
      return Invalid(std::string(name) + " " + DescribeShape(list) + ": every axis must be one of the " +
                     std::to_string(axes) + " that " + (adds ? "there will be, beside those of " : "there are, of ") +
                     DescribeShape(from) + ", and be named once");
    is_named[static_cast<size_t>(axis)] = true;
    if (!adds && from[static_cast<size_t>(axis)] != 1)
      return Invalid("squeeze " + DescribeShape(list) + ": axis " + std::to_string(axis) + " of " +
                     DescribeShape(from) + " is not of length 1");
  }
  Shape to;
  auto next = from.begin();
  for (size_t axis = 0; axis < axes; ++axis) {
    KINTSUGI_CHECK(!adds || is_named[axis] || next != from.end(), "axes that are not put in were there");
    if (adds) to.push_back(is_named[axis] ? 1 : *next++);
    if (!adds && !is_named[axis]) to.push_back(from[axis]);
  }
  return to;
}

Result<Shape> ShapeBehind(const Description& input, const Transform& transform, const Shape* target) {
  if (transform.kind != Transform::Kind::kReshape)
    return Squeezed(input.shape, transform.list, transform.kind == Transform::Kind::kUnsqueeze);
  // Read backwards the list is where the tensor comes from, unless the statement was the other way round already.
  if (!transform.backwards || input.shape != transform.list) return transform.list;
  if (!transform.before.empty()) return transform.before;
  if (target) return *target;
  return Invalid("the shape that " + DescribeShape(transform.list) +
                 " had before it was reshaped is unknown, for it is no key of a destination that is described");
}

Result<DescriptionPtr> Reshape(const DescriptionPtr& input, const Transform& transform, const Shape* target,
                               SliceBudget& budget) {
  KINTSUGI_ASSIGN_OR_RETURN(const Shape to, ShapeBehind(*input, transform, target));
  const Shape& from = input->shape;
  if (to == from) return input;
  if (!IsRepresentable(to) || Volume(WholeBox(from)) != Volume(WholeBox(to)))
    return Invalid("reshape of " + DescribeShape(from) + " to " + DescribeShape(to) +
                   " is not possible: they have not as many elements");
  KINTSUGI_RETURN_IF_ERROR(CheckSteps(*input, budget));
  Description made{to, input->dtype, {}};
  for (const Slice& slice : input->slices) {
    const size_t before = made.slices.size();
    if (!ReshapeSlice(slice, from, to, budget.left(), &made.slices)) return budget.Refuse();
    KINTSUGI_RETURN_IF_ERROR(budget.Take(made.slices.size() - before));
  }
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
  if (slices > left()) return Refuse();
  taken_ += static_cast<int64_t>(slices);
  return Status::Ok();
}

Status SliceBudget::Refuse() const {
  return {StatusCode::kResourceExhausted, "more than the limit of " + std::to_string(limits_.slices) + " slices"};
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
    case Transform::Kind::kSqueeze:
    case Transform::Kind::kUnsqueeze:
      return Reshape(input, transform, target, budget);
  }
  return Status(StatusCode::kInternal, "unknown transform");
}

Result<DescriptionPtr> Merge(const std::vector<DescriptionPtr>& inputs, const std::vector<Name>& names, int64_t axis,
                             bool equal_parts, SliceBudget& budget) {
  KINTSUGI_CHECK(!inputs.empty() && inputs.size() == names.size(), "what is merged has names");
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
  KINTSUGI_CHECK(parts > 0, "what is split has parts");
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
    KINTSUGI_CHECK(0 <= first && last < count, "a slice lies within its tensor");
    IndexBox wanted = slice.result_box;
    for (int64_t i = first; i <= last; ++i) {
      std::vector<Slice>& part = made[static_cast<size_t>(i)]->slices;
      const size_t before = part.size();
      wanted[at] = {std::max(had.begin, i * length), std::min(had.end, (i + 1) * length)};
      if (!CutSlice(slice, wanted, budget.left(), &part)) return budget.Refuse();
      KINTSUGI_RETURN_IF_ERROR(budget.Take(part.size() - before));
      for (size_t k = before; k < part.size(); ++k) {
        part[k].result_box[at].begin -= i * length;
        part[k].result_box[at].end -= i * length;
      }
    }
  }
  return std::vector<DescriptionPtr>(made.begin(), made.end());
}

}  // namespace kintsugi::aoa
