#include "replica/aoa/slice.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

Shape LengthsOf(const IndexBox& box) {
  Shape lengths;
  for (const Interval& interval : box) lengths.push_back(interval.length());
  return lengths;
}

DigitMap MapOf(const Slice& slice) { return slice.map ? *slice.map : DigitMap::Of(LengthsOf(slice.source_box)); }

// The intervals shifted by the begins of `from`.
IndexBox Placed(IndexBox box, const IndexBox& from) {
  KINTSUGI_CHECK(box.size() == from.size(), "a box has the axes of what it is placed in");
  for (size_t axis = 0; axis < box.size(); ++axis) {
    box[axis].begin += from[axis].begin;
    box[axis].end += from[axis].begin;
  }
  return box;
}

IndexBox Relative(IndexBox box, const IndexBox& to) {
  KINTSUGI_CHECK(box.size() == to.size(), "a box has the axes of what it lies in");
  for (size_t axis = 0; axis < box.size(); ++axis) {
    box[axis].begin -= to[axis].begin;
    box[axis].end -= to[axis].begin;
  }
  return box;
}

// Which boxes of the one shape are which boxes of the other, where a whole tensor is reshaped.
class Reshaping {
 public:
  Reshaping(const Shape& from, const Shape& to)
      : direct_(DigitMap::Of(from)), before_(direct_), after_(DigitMap::Of(to)) {
    is_direct_ = direct_.Reshape(to);
    const Shape flat = {Volume(WholeBox(from))};
    // What has no common digits has those of one axis that holds every element.
    if (!is_direct_) KINTSUGI_CHECK(before_.Reshape(flat) && after_.Reshape(flat), "every shape can be flattened");
  }

  // The parts that `box` falls into: where they lie after, if there is one; else some smaller ones that may fall apart again.
  bool Cut(const IndexBox& box, size_t parts_max, std::vector<IndexBox>* parts, IndexBox* image) const {
    std::vector<DigitMap::Part> found;
    if (!(is_direct_ ? direct_ : before_).Cut(DigitMap::kSource, box, parts_max, &found)) return false;
    if (!is_direct_ && found.size() == 1) {
      std::vector<DigitMap::Part> boxes;
      if (!after_.Cut(DigitMap::kResult, found[0].box[DigitMap::kResult], parts_max, &boxes)) return false;
      if (boxes.size() == 1) {
        found[0].box[DigitMap::kResult] = boxes[0].box[DigitMap::kSource];
      } else {
        found.clear();
        for (const DigitMap::Part& part : boxes)
          if (!before_.Cut(DigitMap::kResult, part.box[DigitMap::kResult], parts_max, &found) ||
              found.size() > parts_max)
            return false;
      }
    }
    if (found.size() == 1) *image = found[0].box[DigitMap::kResult];
    for (const DigitMap::Part& part : found) parts->push_back(part.box[DigitMap::kSource]);
    return true;
  }

 private:
  DigitMap direct_;          // from the one shape to the other
  DigitMap before_, after_;  // else: from each to one axis
  bool is_direct_ = true;
};

bool IsEmpty(const IndexBox& box) {
  return std::any_of(box.begin(), box.end(), [](const Interval& interval) { return interval.length() == 0; });
}

std::vector<PieceStep> ChainOf(const Slice& slice) {
  std::vector<PieceStep> steps;
  for (const StepChain* at = slice.steps.get(); at; at = at->before.get()) steps.push_back(at->step);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// The halves of a box of several elements, along its first axis that has two.
std::array<IndexBox, 2> Halves(const IndexBox& box) {
  std::array<IndexBox, 2> halves = {box, box};
  size_t axis = 0;
  while (axis < box.size() && box[axis].length() == 1) ++axis;
  KINTSUGI_CHECK(axis < box.size(), "a box that is halved has several elements");
  halves[0][axis].end = halves[1][axis].begin = box[axis].begin + box[axis].length() / 2;
  return halves;
}

}  // namespace

void AppendStep(Slice* slice, PieceStep step) {
  const int64_t length = slice->steps ? slice->steps->length + 1 : 1;
  slice->steps = std::make_shared<const StepChain>(StepChain{std::move(step), slice->steps, length});
}

void DropCasts(Slice* slice) {
  const std::vector<PieceStep> steps = ChainOf(*slice);
  slice->steps = nullptr;
  for (const PieceStep& step : steps)
    if (step.kind != PieceStepKind::kCast) AppendStep(slice, step);
}

std::vector<PieceStep> ListSteps(const Slice& slice) {
  std::vector<PieceStep> steps = ChainOf(slice);
  if (!slice.is_reshaped) return steps;
  KINTSUGI_CHECK(slice.map.has_value(), "a slice that was reshaped has a map of it");
  std::erase_if(steps, [](const PieceStep& step) { return step.kind != PieceStepKind::kCast; });
  for (PieceStep& step : slice.map->Steps()) steps.push_back(std::move(step));
  return steps;
}

bool CutSlice(const Slice& slice, const IndexBox& wanted, size_t parts_max, std::vector<Slice>* parts) {
  if (parts_max == 0) return false;
  if (wanted == slice.result_box || IsEmpty(slice.result_box)) {
    parts->push_back(slice);
    parts->back().result_box = wanted;
    return true;
  }
  const IndexBox relative = Relative(wanted, slice.result_box);
  if (!slice.map) {
    Slice& part = parts->emplace_back(slice);
    part.source_box = Placed(relative, slice.source_box);
    part.result_box = wanted;
    return true;
  }
  std::vector<DigitMap::Part> cut;
  if (!slice.map->Cut(DigitMap::kResult, relative, parts_max, &cut)) return false;
  int64_t elements = 0;
  for (DigitMap::Part& one : cut) {
    elements += Volume(one.box[DigitMap::kResult]);
    parts->push_back({slice.source, Placed(one.box[DigitMap::kSource], slice.source_box),
                      Placed(one.box[DigitMap::kResult], slice.result_box), std::move(one.map), slice.is_reshaped,
                      slice.steps});
  }
  KINTSUGI_CHECK(elements == Volume(wanted), "the parts of a box make it up");
  return true;
}

void PermuteSlice(Slice* slice, const std::vector<int64_t>& list) {
  KINTSUGI_CHECK(list.size() == slice->result_box.size(), "a permutation names every axis");
  IndexBox box(list.size());
  for (size_t k = 0; k < list.size(); ++k) box[k] = slice->result_box[static_cast<size_t>(list[k])];
  if (!slice->map) slice->map = MapOf(*slice);
  slice->map->Permute(list);
  slice->result_box = std::move(box);
  AppendStep(slice, {PieceStepKind::kPermute, DType::kFloat32, list});
}

bool ReshapeSlice(const Slice& slice, const Shape& from, const Shape& to, size_t parts_max, std::vector<Slice>* parts) {
  if (IsEmpty(slice.result_box)) {
    if (parts_max == 0) return false;
    parts->push_back(
        {slice.source, slice.source_box, IndexBox(to.size()), DigitMap::Of(Shape(to.size(), 0)), true, slice.steps});
    return true;
  }
  KINTSUGI_CHECK(slice.result_box.size() == from.size(), "a slice has the axes of its tensor");
  const Reshaping reshaping(from, to);
  std::vector<Slice> open = {slice};
  size_t made = 0;
  while (!open.empty()) {
    Slice now = std::move(open.back());
    open.pop_back();
    std::vector<IndexBox> boxes;
    IndexBox image;
    if (!reshaping.Cut(now.result_box, parts_max, &boxes, &image)) return false;
    if (boxes.size() == 1) {
      KINTSUGI_CHECK(Volume(image) == Volume(now.result_box), "a reshape keeps all elements");
      DigitMap map = MapOf(now);
      if (map.Reshape(LengthsOf(image))) {
        if (++made + open.size() > parts_max) return false;
        parts->push_back({now.source, now.source_box, image, std::move(map), true, now.steps});
        continue;
      }
      const std::array<IndexBox, 2> halves = Halves(now.result_box);
      boxes.assign(halves.begin(), halves.end());
    }
    std::vector<Slice> smaller;
    for (const IndexBox& box : boxes)
      if (!CutSlice(now, box, parts_max, &smaller) || made + open.size() + smaller.size() > parts_max) return false;
    std::move(smaller.rbegin(), smaller.rend(), std::back_inserter(open));
  }
  return true;
}

}  // namespace kintsugi::aoa
