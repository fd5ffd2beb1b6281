#include <algorithm>
#include <numeric>
#include <tuple>

#include "replica/layout/cover.h"
#include "replica/layout/flat_range.h"
#include "replica/plan/describe.h"
#include "replica/plan/plan_check.h"
#include "replica/plan/renamed_plan.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {
namespace {

using layout::Box;
using layout::ErrorCode;
using layout::KeyMeta;
using layout::LayoutError;
using layout::Metadata;
using layout::PieceView;

// The key of each piece.
std::vector<const KeyMeta*> KeysOfPieces(const Metadata& metadata) {
  std::vector<const KeyMeta*> keys(metadata.piece_count());
  for (const KeyMeta& key : metadata.keys) std::fill_n(keys.begin() + key.first_piece, key.piece_count, &key);
  return keys;
}

class RenamedChecker {
 public:
  RenamedChecker(const RenamedPlan& renamed, const Metadata& target)
      : renamed_(renamed),
        target_(target),
        wanted_key_(KeysOfPieces(renamed.wanted)),
        target_key_(KeysOfPieces(target)),
        has_source_(target.keys.size(), true) {}

  std::optional<LayoutError> Check() {
    for (const std::vector<uint32_t>* list : {&renamed_.added, &renamed_.dropped})
      for (const uint32_t key : *list) {
        if (key >= target_.keys.size()) return Malformed("key", key, target_.keys.size());
        has_source_[key] = false;
      }
    for (size_t i = 0; i < renamed_.uses.size(); ++i)
      if (auto error = CheckUse(i)) return error;
    if (auto error = CheckWanted()) return error;
    return CheckTargets();
  }

 private:
  static LayoutError Malformed(const char* what, uint64_t number, uint64_t count) {
    return {ErrorCode::kFormat,
            "",
            {},
            {},
            std::string("a use names ") + what + " " + std::to_string(number) + " of " + std::to_string(count)};
  }

  LayoutError Refuse(ErrorCode code, const Use& use, std::vector<int32_t> ranks, const std::string& what) const {
    KINTSUGI_CHECK(use.target_piece < target_key_.size() && use.wanted_piece < wanted_key_.size(),
                   "a use whose pieces do not exist has no place to name");
    const KeyMeta& key = *target_key_[use.target_piece];
    return {code, key.name, std::move(ranks), use.target_box,
            Name(key) + ": " + Describe(use.target_box) + " made of " + Describe(use.source_box) + " of '" +
                wanted_key_[use.wanted_piece]->name + "' " + what};
  }

  std::optional<LayoutError> CheckUse(size_t number) const {
    const Use& use = renamed_.uses[number];
    if (use.wanted_piece >= wanted_key_.size()) return Malformed("wanted piece", use.wanted_piece, wanted_key_.size());
    if (use.target_piece >= target_key_.size()) return Malformed("target piece", use.target_piece, target_key_.size());
    const auto place = [](const Use& a) {
      return std::tie(a.wanted_piece, a.target_piece, a.target_box.lo, a.target_box.hi);
    };
    if (number > 0 && !(place(renamed_.uses[number - 1]) < place(use)))
      return Refuse(ErrorCode::kFormat, use, {}, "is out of order");
    const KeyMeta &held = *wanted_key_[use.wanted_piece], &key = *target_key_[use.target_piece];
    const PieceView wanted = renamed_.wanted.Piece(held, use.wanted_piece),
                    piece = target_.Piece(key, use.target_piece);
    if (wanted.box() != use.source_box || wanted.is_flat())
      return Refuse(ErrorCode::kFormat, use, {}, "is not the wanted piece " + Name(wanted));
    if (held.kind != key.kind)
      return Refuse(ErrorCode::kStoredKind, use, RanksOf(piece),
                    "is no " + std::string(key.kind == layout::KeyKind::kObject ? "object" : "tensor"));
    const auto map = StepMap::Make(use.source_box, use.target_box, use.steps);
    if (!map.ok()) return Refuse(ErrorCode::kLocalShape, use, RanksOf(piece), "is impossible: " + map.error().message);
    DType made = held.dtype;
    for (const aoa::PieceStep& step : use.steps)
      if (step.kind == aoa::PieceStepKind::kCast) made = step.dtype;
    if (made != key.dtype)
      return Refuse(
          ErrorCode::kStoredDType, use, RanksOf(piece),
          "arrives as " + std::string(DTypeName(made)) + ", but is asked for as " + std::string(DTypeName(key.dtype)));
    if (!IsWithin(piece, use.target_box))
      return Refuse(ErrorCode::kOutOfBounds, use, RanksOf(piece), "is not within the target's piece " + Name(piece));
    for (const int32_t rank : RanksOf(piece))
      if (!HasHolder(wanted, rank))
        return Refuse(ErrorCode::kRankUnknown, use, {rank},
                      "is asked for by rank " + std::to_string(rank) + ", which does not get it");
    return std::nullopt;
  }

  // A box that is not empty: within a flat range exactly when its first and last element are.
  static bool IsWithin(const PieceView& piece, const Box& box) {
    const Box outer = piece.box();
    if (box.axes != outer.axes || !Contains(outer, box)) return false;
    layout::Point last = box.hi;
    for (int axis = 0; axis < box.axes; ++axis) --last[axis];
    return !piece.is_flat() || (Ravel(outer, box.lo) >= piece.flat.start && Ravel(outer, last) < piece.flat.stop);
  }

  // Nothing travels for nothing.
  std::optional<LayoutError> CheckWanted() const {
    auto use = renamed_.uses.begin();
    std::vector<int32_t> users;
    for (uint32_t i = 0; i < wanted_key_.size(); ++i) {
      users.clear();
      for (; use != renamed_.uses.end() && use->wanted_piece == i; ++use)
        users = JoinRanks(users, RanksOf(target_.Piece(*target_key_[use->target_piece], use->target_piece)));
      const PieceView wanted = renamed_.wanted.Piece(*wanted_key_[i], i);
      if (users != RanksOf(wanted))
        return LayoutError{ErrorCode::kRankUnknown, wanted_key_[i]->name, RanksOf(wanted), wanted.box(),
                           Name(*wanted_key_[i]) + ": " + Name(wanted) + " goes to " +
                               layout::DescribeRanks(RanksOf(wanted)) + ", but is used by " +
                               layout::DescribeRanks(users)};
    }
    return std::nullopt;
  }

  std::optional<LayoutError> CheckTargets() const {
    std::vector<uint32_t> order(renamed_.uses.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return renamed_.uses[a].target_piece < renamed_.uses[b].target_piece;
    });
    auto next = order.begin();
    for (size_t k = 0; k < target_.keys.size(); ++k) {
      const KeyMeta& key = target_.keys[k];
      for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
        const PieceView piece = target_.Piece(key, i);
        layout::BoxList boxes;
        boxes.axes = key.axes;
        for (; next != order.end() && renamed_.uses[*next].target_piece == i; ++next)
          boxes.Add(renamed_.uses[*next].target_box);
        if (boxes.count == 0 && !has_source_[k]) continue;
        if (!has_source_[k])
          return LayoutError{ErrorCode::kFormat, key.name, RanksOf(piece), piece.box(),
                             Name(key) + " is listed as without source, but " + Name(piece) + " is written"};
        if (auto error = CheckCover(key, piece, boxes)) return error;
      }
    }
    return std::nullopt;
  }

  std::optional<LayoutError> CheckCover(const KeyMeta& key, const PieceView& piece, layout::BoxList& boxes) const {
    const Box whole = piece.box();
    const int64_t volume = Volume(whole).value_or(0);
    if (volume == 0 || (piece.is_flat() && piece.flat.start == piece.flat.stop)) return std::nullopt;
    const size_t written = boxes.count;
    // What lies around a flat range counts as written, so that the whole box is.
    if (piece.is_flat())
      for (const FlatRange rest : {FlatRange{0, piece.flat.start}, {piece.flat.stop, volume}})
        for (const Box& box : BoxesOf(whole, rest)) boxes.Add(box);
    const auto found = FindMiscover(whole, boxes);
    if (!found) return std::nullopt;
    const bool is_hole = found->times == 0;
    Box region = whole;
    region.lo = region.hi = found->at;
    for (int axis = 0; axis < region.axes; ++axis) ++region.hi[axis];
    if (is_hole) region = HoleAt(whole, boxes, found->at);
    return LayoutError{is_hole ? ErrorCode::kHole : ErrorCode::kOverlap, key.name, RanksOf(piece), region,
                       Name(key) + ": of " + Name(piece) + ", asked for by " + layout::DescribeRanks(RanksOf(piece)) +
                           ", " + Describe(region) + " is written " + std::to_string(found->times) + " times by " +
                           std::to_string(written) + " uses"};
  }

  const RenamedPlan& renamed_;
  const Metadata& target_;
  const std::vector<const KeyMeta*> wanted_key_, target_key_;
  std::vector<bool> has_source_;
};

}  // namespace

std::optional<LayoutError> CheckRenamed(const RenamedPlan& renamed, const Metadata& source, const Metadata& target) {
  if (auto error = CheckPlan(renamed.plan, source, renamed.wanted)) return error;
  return RenamedChecker(renamed, target).Check();
}

}  // namespace kintsugi::plan
