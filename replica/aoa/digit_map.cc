#include "replica/aoa/digit_map.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

// For every digit of a map, the values that a part has of it.
using Ranges = std::vector<Interval>;

std::vector<size_t> OrderOf(const std::vector<DigitMap::Digit>& digits, DigitMap::Side side) {
  std::vector<size_t> order(digits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const DigitMap::Place &first = digits[a].at[side], &second = digits[b].at[side];
    return first.axis != second.axis ? first.axis < second.axis : first.stride > second.stride;
  });
  return order;
}

// The digits of one axis, outer ones first, as numbers in a map.
using Group = std::vector<size_t>;

std::vector<Group> GroupsOf(const std::vector<DigitMap::Digit>& digits, DigitMap::Side side, size_t axes) {
  std::vector<Group> groups(axes);
  for (const size_t digit : OrderOf(digits, side))
    groups[static_cast<size_t>(digits[digit].at[side].axis)].push_back(digit);
  return groups;
}

class Cutter {
 public:
  Cutter(const DigitMap& map, size_t parts_max) : digits_(map.digits()), parts_max_(parts_max) {
    for (const DigitMap::Side side : {DigitMap::kSource, DigitMap::kResult})
      groups_[side] = GroupsOf(digits_, side, map.lengths(side).size());
  }

  bool Run(DigitMap::Side side, const IndexBox& box, std::vector<Ranges>* parts) {
    std::vector<Ranges> open(1, Ranges(digits_.size()));
    for (size_t axis = 0; axis < box.size(); ++axis) {
      if (box[axis].length() == 0) return true;
      const Group& group = groups_[side][axis];
      if (group.empty()) continue;
      runs_.clear();
      AddRuns(group, 0, box[axis], Ranges(digits_.size()));
      if (runs_.size() == 1 && open.size() == 1) {
        Fill(group, runs_[0], &open[0]);
        continue;
      }
      if (open.size() * runs_.size() > parts_max_) return false;
      std::vector<Ranges> product;
      for (const Ranges& before : open)
        for (const Ranges& run : runs_) Fill(group, run, &product.emplace_back(before));
      open = std::move(product);
    }
    std::reverse(open.begin(), open.end());
    while (!open.empty()) {
      Ranges part = std::move(open.back());
      open.pop_back();
      const size_t bent = FindBent(part);
      if (bent == digits_.size()) {
        parts->push_back(std::move(part));
      } else {
        if (static_cast<size_t>(part[bent].length()) > parts_max_) return false;
        for (int64_t value = part[bent].end; value-- > part[bent].begin;) {
          Ranges& single = open.emplace_back(part);
          single[bent] = {value, value + 1};
        }
      }
      if (parts->size() + open.size() > parts_max_) return false;
    }
    return true;
  }

 private:
  static void Fill(const Group& group, const Ranges& run, Ranges* into) {
    for (const size_t digit : group) (*into)[digit] = run[digit];
  }

  // The numbers `wanted` of an axis, written in its digits from `at` on: partial start, full middle, partial end.
  void AddRuns(const Group& group, size_t at, Interval wanted, Ranges prefix) {
    KINTSUGI_CHECK(at < group.size(), "the digits of an axis write each of its numbers");
    int64_t behind = 1;
    for (size_t i = at + 1; i < group.size(); ++i) behind *= digits_[group[i]].length;
    const auto with = [&](int64_t begin, int64_t end) {
      Ranges made = prefix;
      made[group[at]] = {begin, end};
      return made;
    };
    int64_t first = wanted.begin / behind;
    const int64_t last = wanted.end / behind, start = wanted.begin % behind, rest = wanted.end % behind;
    if (start != 0) {
      const int64_t end = first == last ? rest : behind;
      AddRuns(group, at + 1, {start, end}, with(first, first + 1));
      if (first == last) return;
      ++first;
    }
    if (first < last) {
      Ranges whole = with(first, last);
      for (size_t i = at + 1; i < group.size(); ++i) whole[group[i]] = {0, digits_[group[i]].length};
      runs_.push_back(std::move(whole));
    }
    if (rest != 0) AddRuns(group, at + 1, {0, rest}, with(last, last + 1));
  }

  // A digit with several values in front of one that is not whole: together they are no interval of their axis. None: the
  // number of digits.
  size_t FindBent(const Ranges& part) const {
    for (const std::vector<Group>& side : groups_)
      for (const Group& group : side) {
        size_t several = digits_.size();
        for (const size_t digit : group) {
          if (several != digits_.size() && part[digit].length() != digits_[digit].length) return several;
          if (several == digits_.size() && part[digit].length() > 1) several = digit;
        }
      }
    return digits_.size();
  }

  const std::vector<DigitMap::Digit>& digits_;
  const size_t parts_max_;
  std::vector<Group> groups_[2];
  std::vector<Ranges> runs_;
};

PieceStep ReshapeStep(size_t axes_before, const Shape& to) {
  return {to.size() < axes_before ? PieceStepKind::kFlatten : PieceStepKind::kReshape, DType::kFloat32, to};
}

}  // namespace

DigitMap DigitMap::Of(const Shape& lengths) {
  DigitMap map;
  for (Shape& side : map.lengths_) side = lengths;
  for (size_t axis = 0; axis < lengths.size(); ++axis) {
    const Place place{static_cast<int>(axis), 1};
    if (lengths[axis] != 1) map.digits_.push_back({lengths[axis], {place, place}});
  }
  return map;
}

void DigitMap::Permute(const std::vector<int64_t>& list) {
  const Shape before = lengths_[kResult];
  KINTSUGI_CHECK(list.size() == before.size(), "a permutation names every axis");
  std::vector<int> now(list.size());
  for (size_t k = 0; k < list.size(); ++k) {
    now[static_cast<size_t>(list[k])] = static_cast<int>(k);
    lengths_[kResult][k] = before[static_cast<size_t>(list[k])];
  }
  for (Digit& digit : digits_) digit.at[kResult].axis = now[static_cast<size_t>(digit.at[kResult].axis)];
  std::stable_sort(digits_.begin(), digits_.end(),
                   [](const Digit& a, const Digit& b) { return a.at[kResult].axis < b.at[kResult].axis; });
}

bool DigitMap::Reshape(const Shape& lengths) {
  // Digits that follow each other here and in the source are one.
  std::vector<Digit> joined;
  for (const Digit& digit : digits_) {
    if (!joined.empty()) {
      Digit& outer = joined.back();
      const Place &from = outer.at[kSource], &to = digit.at[kSource];
      if (from.axis == to.axis && from.stride == to.stride * digit.length) {
        outer.length *= digit.length;
        outer.at[kSource] = to;
        continue;
      }
    }
    joined.push_back(digit);
  }
  std::vector<Digit> made;
  auto next = joined.begin();
  for (size_t axis = 0; axis < lengths.size(); ++axis) {
    for (int64_t wanted = lengths[axis]; wanted > 1;) {
      KINTSUGI_CHECK(next != joined.end(), "a shape that a box is given has as many elements as it");
      const int64_t taken = std::min(wanted, next->length);
      if (wanted % taken != 0 || next->length % taken != 0) return false;
      const int64_t rest = next->length / taken;
      made.push_back({taken, {{next->at[kSource].axis, next->at[kSource].stride * rest}, {static_cast<int>(axis), 1}}});
      next->length = rest;
      if (rest == 1) ++next;
      wanted /= taken;
    }
  }
  KINTSUGI_CHECK(next == joined.end(), "digits are handed out whole");
  digits_ = std::move(made);
  lengths_[kResult] = lengths;
  Restride();
  return true;
}

// Strides on the side of the result, from its digits' order.
void DigitMap::Restride() {
  for (size_t i = digits_.size(); i-- > 0;) {
    const bool is_inner = i + 1 == digits_.size() || digits_[i + 1].at[kResult].axis != digits_[i].at[kResult].axis;
    digits_[i].at[kResult].stride = is_inner ? 1 : digits_[i + 1].at[kResult].stride * digits_[i + 1].length;
  }
}

bool DigitMap::Cut(Side side, const IndexBox& box, size_t parts_max, std::vector<Part>* parts) const {
  KINTSUGI_CHECK(box.size() == lengths_[side].size(), "a box that is cut out has the axes of its side");
  std::vector<Ranges> cut;
  if (!Cutter(*this, parts_max).Run(side, box, &cut)) return false;
  for (const Ranges& ranges : cut) {
    Part& part = parts->emplace_back();
    for (const Side one : {kSource, kResult}) {
      part.box[one].assign(lengths_[one].size(), {0, 1});
      part.map.lengths_[one].assign(lengths_[one].size(), 1);
    }
    for (size_t i = 0; i < digits_.size(); ++i) {
      const Digit& digit = digits_[i];
      for (const Side one : {kSource, kResult}) {
        const auto axis = static_cast<size_t>(digit.at[one].axis);
        part.box[one][axis].begin += ranges[i].begin * digit.at[one].stride;
        part.map.lengths_[one][axis] *= ranges[i].length();
      }
      if (ranges[i].length() > 1) part.map.digits_.push_back({ranges[i].length(), {digit.at[0], digit.at[1]}});
    }
    for (const Side one : {kSource, kResult})
      for (size_t axis = 0; axis < part.box[one].size(); ++axis)
        part.box[one][axis].end = part.box[one][axis].begin + part.map.lengths_[one][axis];
    KINTSUGI_CHECK(Volume(part.box[kSource]) == Volume(part.box[kResult]), "a part is as large on both sides");
  }
  return true;
}

std::vector<DigitMap::Digit> DigitMap::DigitsOf(Side side) const {
  std::vector<Digit> ordered;
  for (const size_t digit : OrderOf(digits_, side)) ordered.push_back(digits_[digit]);
  return ordered;
}

std::vector<PieceStep> DigitMap::Steps() const {
  std::vector<PieceStep> steps;
  const Shape &from = lengths_[kSource], &to = lengths_[kResult];
  const std::vector<size_t> order = OrderOf(digits_, kSource);
  if (std::is_sorted(order.begin(), order.end())) {
    if (from != to) steps.push_back(ReshapeStep(from.size(), to));
    return steps;
  }
  Shape apart, permuted;
  std::vector<int64_t> permute(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    apart.push_back(digits_[order[k]].length);
    permute[order[k]] = static_cast<int64_t>(k);
  }
  for (const Digit& digit : digits_) permuted.push_back(digit.length);
  if (apart != from) steps.push_back(ReshapeStep(from.size(), apart));
  steps.push_back({PieceStepKind::kPermute, DType::kFloat32, permute});
  if (permuted != to) steps.push_back(ReshapeStep(permuted.size(), to));
  return steps;
}

}  // namespace kintsugi::aoa
