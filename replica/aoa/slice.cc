#include "replica/aoa/slice.h"

#include <algorithm>
#include <numeric>

namespace kintsugi::aoa {
namespace {

void MakeImpossible(Slice* slice, std::string why) {
  if (!slice->impossible) slice->impossible = std::make_shared<const std::string>(std::move(why));
}

// From the newest axes over the ones before to the source's: `num` elements of the axis before stand for `den` new
// ones.
AxisMap Compose(const AxisMap& before, int64_t num, int64_t den) {
  if (before.axis < 0) return before;
  const int64_t common = std::gcd(num, before.den);
  return {before.axis, num / common * before.num, den * (before.den / common)};
}

bool IsWhole(const IndexBox& box, const Shape& shape, size_t from_axis) {
  for (size_t axis = from_axis; axis < shape.size(); ++axis)
    if (box[axis].begin != 0 || box[axis].end != shape[axis]) return false;
  return true;
}

bool IsEmpty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

// Takes the new rows: the first axis can be cut in groups, the others not at all.
void SetRows(Slice* slice, const Shape& to, Interval rows, int64_t num, int64_t den) {
  const AxisMap first = Compose(slice->Map(0), num, den);
  slice->result_box = WholeBox(to);
  slice->axes.assign(to.size(), AxisMap{});
  if (IsEmpty(to)) return;
  slice->result_box[0] = rows;
  slice->axes[0] = first;
}

}  // namespace

void AppendStep(Slice* slice, PieceStep step) {
  const int64_t length = slice->steps ? slice->steps->length + 1 : 1;
  slice->steps = std::make_shared<const StepChain>(StepChain{std::move(step), slice->steps, length});
}

std::vector<PieceStep> ListSteps(const Slice& slice) {
  std::vector<PieceStep> steps;
  for (const StepChain* at = slice.steps.get(); at; at = at->before.get()) steps.push_back(at->step);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

Result<IndexBox> SourceBoxOf(const Slice& slice, const IndexBox& wanted) {
  if (slice.impossible) return Status(StatusCode::kInvalidArgument, *slice.impossible);
  IndexBox source = slice.source_box;
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    const Interval& had = slice.result_box[axis];
    if (wanted[axis] == had) continue;
    const AxisMap map = slice.Map(axis);
    const int64_t skipped = wanted[axis].begin - had.begin, length = wanted[axis].length();
    if (map.axis < 0 || skipped % map.den != 0 || length % map.den != 0)
      return Status(StatusCode::kInvalidArgument,
                    "axis " + std::to_string(axis) + " was reshaped and can only be taken " +
                        (map.axis < 0 ? "whole" : "in blocks of " + std::to_string(map.den)));
    Interval& cut = source[static_cast<size_t>(map.axis)];
    cut.begin += skipped / map.den * map.num;
    cut.end = cut.begin + length / map.den * map.num;
  }
  return source;
}

void CutAxis(Slice* slice, size_t axis, Interval wanted) {
  IndexBox box = slice->result_box;
  box[axis] = wanted;
  if (auto source = SourceBoxOf(*slice, box); source.ok())
    slice->source_box = std::move(source).value();
  else
    MakeImpossible(slice, source.status().message());
  slice->result_box = std::move(box);
}

void PermuteSlice(Slice* slice, const std::vector<int64_t>& list) {
  IndexBox box(list.size());
  std::vector<AxisMap> axes(list.size());
  for (size_t k = 0; k < list.size(); ++k) {
    const auto axis = static_cast<size_t>(list[k]);
    box[k] = slice->result_box[axis];
    axes[k] = slice->Map(axis);
  }
  slice->result_box = std::move(box);
  slice->axes = std::move(axes);
  AppendStep(slice, {PieceStepKind::kPermute, DType::kFloat32, list});
}

void BlockRows(Slice* slice, const Shape& from, const Shape& to) {
  const Interval rows = slice->result_box[0];
  const int64_t block = to[1];
  if (!IsEmpty(to) && (rows.begin % block != 0 || rows.end % block != 0 || !IsWhole(slice->result_box, from, 1)))
    MakeImpossible(slice, "a piece with rows " + DescribeBox(slice->result_box) + " of " + DescribeShape(from) +
                              " is not made of whole blocks of " + std::to_string(block) + " rows");
  const Interval blocks = IsEmpty(to) ? Interval{} : Interval{rows.begin / block, (rows.end + block - 1) / block};
  SetRows(slice, to, blocks, block, 1);
  AppendStep(slice, {PieceStepKind::kReshape, DType::kFloat32, to});
}

void UnblockRows(Slice* slice, const Shape& from, const Shape& to) {
  const Interval blocks = slice->result_box[0];
  const int64_t block = from[1];
  if (!IsEmpty(from) && !IsWhole(slice->result_box, from, 1))
    MakeImpossible(slice, "a piece " + DescribeBox(slice->result_box) + " of " + DescribeShape(from) +
                              " has not all of its axes behind the first whole");
  SetRows(slice, to, {blocks.begin * block, blocks.end * block}, 1, block);
  AppendStep(slice, {PieceStepKind::kFlatten, DType::kFloat32, to});
}

}  // namespace kintsugi::aoa
