// Description: a tensor as a program sees it at one point: shape, type, and the slices it is made of.
//
// Functions return a new description; none changes one that others may read.
// Errors: a Status of kInvalidArgument without a place, for the caller knows the statement; kResourceExhausted past a
// limit.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "replica/aoa/operation.h"
#include "replica/aoa/options.h"
#include "replica/aoa/slice.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

struct Description {
  Shape shape;
  DType dtype = DType::kFloat32;  // after the steps so far
  std::vector<Slice> slices;      // in the order of answers
};

using DescriptionPtr = std::shared_ptr<const Description>;

// Counts slices against the limits.
class SliceBudget {
 public:
  explicit SliceBudget(const Limits& limits) : limits_(limits) {}
  Status Take(size_t slices);
  size_t left() const { return static_cast<size_t>(std::max<int64_t>(0, limits_.slices - taken_)); }
  // What Take says where there are not enough left.
  Status Refuse() const;
  const Limits& limits() const { return limits_; }

 private:
  const Limits& limits_;
  int64_t taken_ = 0;
};

// The whole of source tensor number `source`.
DescriptionPtr DescribeSource(int source, const Shape& shape, DType dtype);

// `target`: the shape to reach where a reshape read backwards cannot know it from its list; null: not known.
Result<DescriptionPtr> Apply(const Transform& transform, const DescriptionPtr& input, const Shape* target,
                             SliceBudget& budget);

// `equal_parts`: all lengths along the axis must be equal too. `names`: of the inputs, for messages.
Result<DescriptionPtr> Merge(const std::vector<DescriptionPtr>& inputs, const std::vector<Name>& names, int64_t axis,
                             bool equal_parts, SliceBudget& budget);

Result<std::vector<DescriptionPtr>> Split(const Description& input, size_t parts, int64_t axis, SliceBudget& budget);

}  // namespace kintsugi::aoa
